"""Experiment trackers: TensorBoard, MLflow, Weights & Biases, and objects that a user gives."""
