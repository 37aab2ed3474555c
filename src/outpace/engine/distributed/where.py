"""Finds the line of a script that calls torch.distributed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Final

import torch

from outpace.support.user_code import is_users

_TORCH: Final = str(Path(torch.__file__).parent) + "/"
_OWN: Final = str(Path(__file__).parents[2]) + "/"
_NOT_COMPILED: Final = (_TORCH + "_compile.py", _TORCH + "_dynamo/eval_frame.py")
SUPPORTED: Final = (
    "supported are DistributedDataParallel and collectives of all processes; run this one with "
    "torchrun"
)


def where(frame: FrameType | None) -> str:
    """Return the script's line, such as `train.py:41`, from the innermost frame of a call.

    This is the innermost line outside of libraries; if there is none, the innermost line outside of
    torch.
    """
    outside = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_TORCH, _OWN, "<")):
            line = f"{name.rpartition('/')[2]}:{frame.f_lineno}"
            if is_users(name):
                return line
            outside = outside or line
        frame = frame.f_back
    return outside or "backward()"


def called_by_reducer(frame: FrameType | None) -> bool:
    """True if DistributedDataParallel's C++ code made the call, not a Python function.

    Then the caller is the backward pass, the code in DistributedDataParallel that replaces a
    process without inputs (`join`), or no Python function at all (a thread of the autograd engine).
    """
    if frame is None:
        return True
    name = frame.f_code.co_filename
    return name.startswith(_TORCH) and name.endswith(
        ("/autograd/graph.py", "/nn/parallel/distributed.py", "/autograd/__init__.py")
    )


def innermost() -> FrameType | None:
    """Return the innermost frame outside of Outpace and of the guard against torch.compile."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_OWN, *_NOT_COMPILED)):
        frame = frame.f_back
    return frame
