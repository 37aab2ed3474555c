"""Digests of small runs: which of them changes with a change of the source, and which does not."""
