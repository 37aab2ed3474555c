"""The runtime on real processes: the same kernel, shard, policies and programs over ZeroMQ."""
