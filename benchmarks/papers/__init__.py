"""The experiments of the papers that Outpace unites: published compared with measured results."""
