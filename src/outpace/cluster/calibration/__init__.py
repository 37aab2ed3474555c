"""Estimates the laws of machines and links from what was recorded; pure functions of arrays."""
