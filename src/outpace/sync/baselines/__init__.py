"""Strategies that serve only as baselines in the papers' experiments.

Each file has the configuration and the program of one strategy, with the same interface as a
strategy in a user's file (`sync.policy.Policy`).
"""
