"""What follows from the trials: speed-ups, how well they are known, and what a user is promised."""
