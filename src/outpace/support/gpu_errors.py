"""Recognizes errors of a GPU, and says what to do about the common ones. Does not import torch."""

from __future__ import annotations

from typing import Final

_KINDS: Final = ("OutOfMemoryError", "AcceleratorError")  # classes of torch
_NO_ROOM: Final = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


def is_gpu_error(error: BaseException) -> bool:
    """True if an operation of this process on a GPU has failed, now or earlier.

    Operations on a GPU are queued, so a later operation may raise the error of an earlier one.
    """
    return type(error).__name__ in _KINDS or str(error).startswith("CUDA ")


def in_short(error: BaseException) -> str:
    """Return the text of an error of a GPU, without torch's hints for developers."""
    line = str(error).partition("\n")[0]
    before, found, _ = line.partition(" is free.")
    return (before + found).rstrip(". ")


def remedy(error: BaseException) -> str:
    """Return advice about an error of a GPU, beginning with a colon; empty if none is known."""
    text = str(error)
    if any(each in text for each in _NO_ROOM):
        return (
            ": use a smaller batch or model, or fewer workers on this GPU: each has its own "
            "model, optimizer and CUDA context"
        )
    if "invalid device ordinal" in text:
        return (
            ": this process has fewer GPUs than that: use as many workers as there are GPUs, or "
            "let workers share one: LOCAL_RANK % torch.cuda.device_count()"
        )
    return ""
