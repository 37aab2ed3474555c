"""What advice is asked for: strategies, target, changed clusters, curves of trials."""
