"""All strategies on six clusters and three tasks, each with a learning rate of its own."""
