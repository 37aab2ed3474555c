"""Digests of small runs, which show whether a change of the source changes their results."""
