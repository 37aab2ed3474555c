"""Rules of how long to wait for workers, iteration by iteration."""
