"""All strategies on six clusters and three tasks, each with its own learning rate."""
