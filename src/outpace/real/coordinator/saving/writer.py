"""Writes files of checkpoints that processes have sent."""

from __future__ import annotations

from pathlib import Path

import torch

from outpace.record.checkpoints import Part
from outpace.record.checkpoints.tensors import checked, write_bytes


def written_to(path: Path, data: torch.Tensor) -> Part | OSError:
    """Write bytes, a uint8 tensor, to a file; return the file, or why it cannot be written."""
    try:
        write_bytes(path, data.numpy().data)
        return checked(path)
    except OSError as error:
        return error
