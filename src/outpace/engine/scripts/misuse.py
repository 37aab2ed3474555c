"""Errors for what scripts must not do, the same in every runtime."""

from __future__ import annotations

import re

from outpace.errors import ConfigError
from outpace.support.place import HERE


def when_shared() -> str:
    """Return when the run took over the script's model and optimizer."""
    if HERE.is_distributed and not HERE.has_attached:
        return "at the first forward pass of DistributedDataParallel"
    return "in outpace.attach"


def with_name(process: str, text: str) -> str:
    """Return what went wrong with the name of the process in front, unless the text has it."""
    number = process.removeprefix("worker-")
    is_named = re.search(rf"\b(worker.{number}|{process})\b", text) is not None
    return text if is_named else f"{process}: {text}"


def other_parameters(worker: str, layout: str, first: str) -> ConfigError:
    """Return the error for a worker whose model is not that of worker 0, by their layouts."""
    place = next((n for n, (a, b) in enumerate(zip(layout, first, strict=False)) if a != b), 0)
    part = slice(max(0, place - 60), place + 60)
    return ConfigError(
        f"{worker} trains other parameters than worker-0: ...{layout[part]!r} where worker-0 has "
        f"{first[part]!r}"
    )
