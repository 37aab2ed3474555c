"""Membership of a run: the table of its processes, and what follows from what happens to them."""
