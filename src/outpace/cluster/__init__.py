"""The simulated machines: how long workers compute, what the network takes."""
