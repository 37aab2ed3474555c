"""The states of shards at checkpoints, and the choice of the moment at which they are taken."""
