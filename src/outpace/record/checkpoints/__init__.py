"""Checkpoints on disk: `RUN/checkpoints/000012/`, one folder each, which is whole or absent.

    server-0.safetensors, ...  the parameters of each server and the tensors of its optimizer
    metrics.parquet            the metrics so far
    index.json                 everything else, with the size and CRC-32 of the other files

A checkpoint is written into `000012.part`, which is renamed when all its files are on the disk.
"""

from __future__ import annotations

from outpace.support.exports import lazily

# Imported on first use: `outpace status` reads `committed` and `lock`, which need no torch.
__getattr__, __all__ = lazily(__name__, __file__)
