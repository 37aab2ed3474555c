"""Scripts that use torch.distributed and DistributedDataParallel, unchanged (decision 11)."""
