"""Explains a run: the causes that slow it, and the time that it would take without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from outpace.experiment.explaining.gains import gains_of
from outpace.experiment.explaining.servers import with_servers
from outpace.experiment.sources import path_of
from outpace.report.explaining import Explanation
from outpace.report.explaining.explained import examined


def explain(
    folder: str | Path, changes: Mapping[str, Any] | None = None, *, gains: bool = True
) -> Explanation:
    """Return which worker, server or link slows a run, how much, and what its repair would gain.

        outpace.explain("runs/train", {"sync": {"kind": "asp"}})

    Args:
        folder: Folder of a run, real or simulated.
        changes: Keys of the configuration, such as another `sync`: the run is simulated with
            them as well, to say what it would take then.
        gains: Simulate the run again with its recorded run times, without each cause.

    Raises:
        ConfigError: With one line, if the folder is not that of a run, has no times, or has fewer
            than 8 iterations; or if the run cannot be simulated with the changes.
    """
    found = with_servers(examined(path_of(folder, "folder")))
    if not gains and not changes:
        return found.explanation
    more, notes = gains_of(found, dict(changes or {}), of_causes=gains)
    whole = (*found.explanation.notes, *notes)
    return replace(found.explanation, gains=tuple(more), notes=whole)
