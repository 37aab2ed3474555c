"""Programs: coroutines that say how workers and servers talk, in any runtime."""
