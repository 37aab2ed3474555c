"""The simulated machines: the run times of workers and servers, and the network."""
