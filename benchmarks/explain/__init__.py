"""Measures whether slow workers, servers and links are named correctly, and how soon."""
