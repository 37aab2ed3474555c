"""Whether other processes took the cores while runs were recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from outpace.record.folder import read_summary

_OTHERS: Final = 0.1  # share of the cores that other processes may take
_BUSY: Final = 0.6  # share of the cores that may be busy: below, a process hardly waits for a core


def busy_words(folders: Sequence[Path]) -> str:
    """Return a sentence about the first run beside which other processes took the cores.

    It is empty if there is none, and for runs that do not say: simulated ones, and those whose
    workers were started elsewhere.
    """
    for folder in folders:
        found = read_summary(folder).get("processor")
        if isinstance(found, Mapping) and (words := _words(found)):
            return f"while the run {folder.name} was recorded, {words}"
    return ""


def _words(found: Mapping[str, Any]) -> str:
    values = [found.get(key) for key in ("cores", "busy", "others")]
    if not all(isinstance(value, int | float) for value in values):
        return ""
    cores, busy, others = (float(value) for value in values if value is not None)
    if cores <= 0 or others <= _OTHERS * cores or busy <= _BUSY * cores:
        return ""
    return (
        f"processes that do not belong to it kept {others:.1f} of {cores:g} cores busy: its times "
        "are those of such a machine; record a run when the machine is as it will be"
    )
