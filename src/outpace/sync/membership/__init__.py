"""Membership of a run: the table of its processes, and the decisions after events."""
