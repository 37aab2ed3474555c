"""Digests of parameters."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch

from outpace.blocks.block import Block, parts


def parameters_digest(blocks: Sequence[Block]) -> str:
    """Return the SHA-256 of the flat parameter vector: its dtype, length and bytes."""
    digest = hashlib.sha256()
    tensors = [tensor for block in blocks for tensor in parts(block)]
    if tensors:
        flat = torch.cat(tensors)
        digest.update(f"{flat.dtype} {flat.numel()} ".encode())
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    else:
        digest.update(f"phantom {sum(block.nbytes for block in blocks)}".encode())
    return digest.hexdigest()
