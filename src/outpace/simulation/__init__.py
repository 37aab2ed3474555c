"""Runs in virtual time."""
