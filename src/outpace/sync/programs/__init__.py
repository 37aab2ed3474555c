"""Programs: coroutines of workers, servers and schedulers that run in every runtime."""
