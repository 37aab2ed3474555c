"""The trials of a study: the search for learning rates, and runs on fresh seeds."""
