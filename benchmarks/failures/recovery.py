"""How soon a run continues after the death of a worker or of a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.failures.running import kill, large, run
from benchmarks.rows import Row, row

from outpace.engine.control import Control
from outpace.real.run import RealRun

WORKER_S, SERVER_S = 3.0, 5.0
_LIMIT_S = 120.0
_LOOK_S = 0.05
_SMALL_MB = 0.1


def recovery(
    out: Path,
    say: Callable[[str], object],
    megabytes: float,
    kills: int,
    roles: Sequence[str] = ("worker", "server"),
    every_s: float = 1.0,
) -> list[Row]:
    """Return the seconds from a kill until the process, or all of them, have begun again.

    every_s: seconds between two checkpoints.
    """
    rows = []
    for role in roles:
        goal = WORKER_S if role == "worker" else SERVER_S
        for size in (megabytes, None):
            config = {
                **large(size or _SMALL_MB, checkpoint={"every_s": every_s}),
                "stop": {"virtual_time_s": _LIMIT_S + 30 * kills},
            }
            if size is None:
                config["compute"] = {"kind": "constant", "mean_s": 0.05}
            folder = out / f"recovery-{role}-{'large' if size else 'small'}"
            say(f"{folder.name}: {kills} kills")
            killing = _AgainAndAgain(f"{role}-0", kills)
            result = run(config, folder, control=killing.control, watch=killing.watch)
            trace = [each for each in result.trace.to_pylist() if each["event"] == "restart"]
            if len(trace) != kills:
                raise RuntimeError(f"{folder}: not every kill was a restart")
            ends = sorted(each["end_ns"] / 1e9 for each in trace)
            took = [end - at for end, at in zip(ends, killing.at_s, strict=True)]
            what = f"a model of {megabytes:g} MB" if size else "a small model"
            rows.append(row(f"a killed {role} is back, {what}", took, unit="s", goal=goal))
    return rows


class _AgainAndAgain:
    """Kills a process, and kills it again after two more checkpoints, when the run has recovered.

    Attributes:
        at_s: times of the kills, in seconds of the run.
    """

    def __init__(self, name: str, kills: int) -> None:
        self.at_s: list[float] = []
        self._name, self._kills = name, kills
        self._run: RealRun | None = None
        self._last = 0  # checkpoint at the last kill

    def watch(self, run: RealRun) -> None:
        self._run = run

    def control(self, control: Control) -> None:
        """Kill the process repeatedly; called at the start of training and after lost servers."""

        def look() -> None:
            assert self._run is not None
            known = self._run.events.checkpoint
            if known is None or known.number < self._last + 2:
                control.at(control.now_s + _LOOK_S, look)
            elif len(self.at_s) == self._kills:
                self._run.coordinator.end("all is measured")
            else:
                self._last = known.number
                self.at_s.append(control.now_s)
                kill(self._run, self._name)
                control.at(control.now_s + _LOOK_S, look)

        look()
