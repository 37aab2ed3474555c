"""Zhang, Tanimura and Nakada: a hybrid simulator of distributed training."""
