"""Resuming a run that was interrupted, and what else is done with its checkpoints."""
