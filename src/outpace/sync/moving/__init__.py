"""Servers that join and leave while the training goes on: the parts of shards that move."""
