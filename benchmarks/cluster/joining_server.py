"""What workers notice of a server that joins a run that goes on: how long they stand still."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.failures.rows import Row, row
from benchmarks.failures.running import ends_s, large, run

from outpace.engine.control import Control
from outpace.real.control import RealControl
from outpace.real.run import RealRun
from outpace.record.event_log import LOG

STILL_GOAL, MOVED_GOAL = 2.0, 0.05
_WORKERS, _SERVERS = 2, 2
_LIMIT_S: Final = 300.0
_LOOK_S: Final = 0.1


def joining_server(
    out: Path, say: Callable[[str], object], rounds: int, megabytes: float, before_s: float
) -> list[Row]:
    """Return for how many of its iterations a worker stands still, and what moved.

    A third server joins a run of BSP that is as fast as the processors allow.

    Args:
        before_s: so long the run goes on before the server is asked for, and after it has joined.
    """
    still, more = [], []
    for number in range(rounds):
        folder = out / f"server-{number}"
        say(f"{folder.name}: a third server joins")
        changing = _Changing(folder, before_s)
        config = large(megabytes, workers=_WORKERS, servers=_SERVERS)
        config["stop"] = {"virtual_time_s": _LIMIT_S}
        result = run(config, folder, control=changing.control, watch=changing.watch)
        (divided,) = _events(folder, "divided")
        still.append(_longest(result, changing.asked_s))
        width = round(math.sqrt(megabytes * 1e6 / 4))  # see `benchmarks.failures.large`
        least = 4 * (width**2 // (_SERVERS + 1))
        more.append(divided["moved_bytes"] / least - 1)
    name = f"a third server joins, BSP, {_WORKERS} workers, a model of {megabytes:g} MB"
    return [
        row(f"{name}: a worker stands still", still, unit="iterations", goal=STILL_GOAL),
        row(f"{name}: bytes moved beyond the least possible", more, unit="%", goal=MOVED_GOAL),
    ]


class _Changing:
    """Asks for a server, and ends the run some time after it has joined."""

    def __init__(self, folder: Path, before_s: float) -> None:
        self.asked_s = math.inf
        self._folder, self._before_s = folder, before_s
        self._run: RealRun | None = None

    def watch(self, run: RealRun) -> None:
        self._run = run

    def control(self, control: Control) -> None:
        control.at(self._before_s, lambda: self._ask(control))

    def _ask(self, control: Control) -> None:
        assert isinstance(control, RealControl)
        self.asked_s = control.now_s
        control.scale(servers=_SERVERS + 1)

        def look() -> None:
            assert self._run is not None
            if not _events(self._folder, "divided"):
                control.at(control.now_s + _LOOK_S, look)
            else:
                end = self._run.coordinator.end
                control.at(control.now_s + self._before_s, lambda: end("all is measured"))

        look()


def _events(folder: Path, event: str) -> list[dict[str, Any]]:
    """Return the fields of such events in the log of a run."""
    lines = map(json.loads, (folder / LOG).read_text(encoding="utf-8").splitlines())
    return [line["fields"] for line in lines if line["event"] == event]


def _longest(result: Any, asked_s: float) -> float:
    """Return by how many of its iterations a worker's longest one is longer than the median.

    Of the iterations that ended after the server was asked for; the median is of those before.
    """
    longest = 0.0
    for ends in ends_s(result, _WORKERS):
        took = np.diff(ends)
        usual = float(np.median(took[ends[1:] < asked_s]))
        longest = max(longest, float(took[ends[1:] >= asked_s].max()) / usual - 1)
    return longest
