"""Advice: which strategy reaches a target soonest on a given cluster, and how certain that is."""
