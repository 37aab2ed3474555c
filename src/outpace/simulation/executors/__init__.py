"""Real gradients for virtual time: computed late, ahead, elsewhere, together, or never."""
