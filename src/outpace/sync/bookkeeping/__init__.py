"""What a shard keeps account of: progress, sums, pulls and gradients that wait; what is illegal."""
