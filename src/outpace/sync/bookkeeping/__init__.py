"""The accounts of a shard: progress, sums, pulls and gradients that wait; what is illegal."""
