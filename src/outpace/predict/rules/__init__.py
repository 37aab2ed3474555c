"""Rules that say how long to wait for workers, iteration by iteration."""
