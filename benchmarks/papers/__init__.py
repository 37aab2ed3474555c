"""The experiments of the papers that Outpace unites: published against measured."""
