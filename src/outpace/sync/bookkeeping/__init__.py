"""The records of a shard: progress, sums, waiting pulls and gradients; and the refused messages."""
