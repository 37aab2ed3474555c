"""Strategies that only the papers' experiments use, as baselines.

Each is one file: configuration and program, behind the interface that a strategy of a
user's file has (`sync.policy.Policy`).
"""
