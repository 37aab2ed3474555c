"""HPSGD: all-reduces behind the computation."""
