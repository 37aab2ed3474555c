"""Rules that change a strategy while a run goes on, from what they observe of it.

A rule has no clock, randomness, socket or tensor. It is told of each iteration of a worker and
may answer with an order: the setting to go on with, and the reason. `engine.adapting` observes a
run, and passes the orders on.
"""
