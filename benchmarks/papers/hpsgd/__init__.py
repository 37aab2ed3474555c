"""HPSGD: all-reduces during the computation."""
