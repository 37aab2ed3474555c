"""Scripts that use torch.distributed and DistributedDataParallel, unchanged (ADR 20)."""
