"""Executors compute the gradients of virtual time: late, ahead, in other processes, or never."""
