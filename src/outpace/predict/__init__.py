"""When to stop waiting: run-time models, and rules that cut an iteration off."""
