"""How soon a run continues: after the death of a worker, of a server, and by `--resume`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.failures.running import kill, large, run
from benchmarks.rows import Row, row

from outpace.engine.control import Control
from outpace.real.run import RealRun
from outpace.record.folder import LOG

WORKER_S, SERVER_S, RESUME_S = 3.0, 5.0, 5.0
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

    every_s: between two checkpoints.
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
    """Kills a process, and again when there are two more checkpoints: then all continues as before.

    Attributes:
        at_s: when it was killed, in seconds of the run.
    """

    def __init__(self, name: str, kills: int) -> None:
        self.at_s: list[float] = []
        self._name, self._kills = name, kills
        self._run: RealRun | None = None
        self._last = 0  # checkpoint at the last kill

    def watch(self, run: RealRun) -> None:
        self._run = run

    def control(self, control: Control) -> None:
        """Called when the training begins, and again after each loss of a server."""

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


def resuming(out: Path, say: Callable[[str], object], megabytes: float, pairs: int) -> list[Row]:
    """Return the seconds by which a resume takes longer than a start until the training begins."""
    config = large(megabytes, checkpoint={"every_s": 1}, stop={"iterations": 1_000_000})
    file = out / "resume.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    starts, resumes = [], []
    for pair in range(pairs):
        folder = out / f"resume-{pair}"
        say(f"{folder.name}: a start and a resume")
        starts.append(until_training(["run", str(file), "--out", str(folder)], folder, 1))
        resumes.append(until_training(["run", "--resume", str(folder)], folder, 2))
    more = [resume - start for start, resume in zip(starts, resumes, strict=True)]
    what = f"a model of {megabytes:g} MB, from the command to the training"
    return [
        row(f"start, {what}", starts, unit="s"),
        row(f"resume, {what}", resumes, unit="s"),
        row("resume beside the start of the same pair", more, unit="s", goal=RESUME_S),
    ]


def until_training(arguments: list[str], folder: Path, number: int) -> float:
    """Return the seconds until the training has begun for this time, and kill the command.

    It is killed when there is another checkpoint, to continue from.
    """
    started, at = time.monotonic(), 0.0
    with subprocess.Popen([sys.executable, "-m", "outpace", *arguments, "-q"]) as process:
        try:
            while True:
                events = [each["event"] for each in _logged(folder)]
                if at == 0.0 and events.count("training") == number:
                    at = time.monotonic() - started
                if at and "checkpoint" in events[::-1][: events[::-1].index("training")]:
                    return at
                if process.poll() is not None or time.monotonic() - started > _LIMIT_S:
                    raise RuntimeError(f"outpace {' '.join(arguments)} did not begin to train")
                time.sleep(0.01)
        finally:
            process.kill()


def _logged(folder: Path) -> Iterator[dict[str, Any]]:
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / LOG).read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)
