"""The log of what happens to a run: log.jsonl in its folder, one JSON object per line.

Every object has these keys:

    time        when it happened, in UTC
    level       info, warning or error
    run         the name of the run's folder
    role        the process that it concerns: launcher, coordinator, worker-N or server-N
    number      N; null for launcher and coordinator
    generation  of that process: 0 for the first of its name, higher for one that replaces it
    event       start, resume, launched, joined, training, checkpoint, checkpoint-failed, lost,
                restarted, not-restarted, scaled, elastic, group-restart, begin-anew, failed,
                finished, notice, warning or end
    message     what happened, in words
    fields      what else is known, by name

The launcher is the process of the command, in which the coordinator is, too.

Lines are only ever appended, also when a run is resumed in its folder.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from outpace.support.regular_files import inside
from outpace.support.words import plural

LOG: Final = "log.jsonl"
LAUNCHER: Final = "launcher"
COORDINATOR: Final = "coordinator"
Level: TypeAlias = Literal["info", "warning", "error"]


_MESSAGES: Final = {
    "start": "the run begins: {workers:worker}, {servers:server}",
    "resume": "the run is resumed from checkpoint {number}: {workers:worker}, {servers:server}",
    "launched": "{processes:process is|processes are} started",
    "joined": "{role} has joined, process {process}",
    "training": "the training begins at {time_s:.3f} s of the run",
    "checkpoint": "checkpoint {number}, of {time_s:.3f} s of the run, is complete",
    "checkpoint-failed": "checkpoint {number} is missing: {why}",
    "lost": "{why}",
    "restarted": "{role} is started again at iteration {first}, generation {generation}",
    "not-restarted": "{role} is not started again: there was no room for its process",
    "scaled": "the run continues with {workers:worker} and {servers:server}, after {took_s:.2f} s",
    "elastic": "{why}",
    "group-restart": "{cause}; all processes begin again from checkpoint {number}",
    "begin-anew": "{cause}; nothing was trained yet: all processes are started again",
    "failed": "{text}",
    "finished": "{role} is done",
    "notice": "{text}",
    "warning": "{text}",
    "end": "the run has ended: {status}",
}
_NAME: Final = re.compile(r"(?:worker|server)-(\d+)\b")


class _Count(int):
    """A number that is formatted with the noun in its place, such as {workers:worker}."""

    def __format__(self, nouns: str) -> str:
        noun, _, several = nouns.partition("|")
        return plural(int(self), noun, several) if noun else str(int(self))


class LastCheckpoint(NamedTuple):
    """number: of the checkpoint. time_s: of the run. written: seconds since the epoch."""

    number: int
    time_s: float
    written: float


class EventLog:
    """Appends to the log of one run, and knows the last checkpoint.

    Nothing is written before `open`, because the folder may not exist yet.

    Args:
        path: of the file; None: nothing is written.
        warn: called once, with a line for the user, if the file cannot be written.
    """

    def __init__(
        self, path: Path | None = None, warn: Callable[[str], object] = lambda _: None
    ) -> None:
        self.checkpoint: LastCheckpoint | None = None  # the last one of this session
        self.failure: str | None = None  # why the last checkpoint is missing, if it is
        self._path, self._warn = path, warn
        self._early: list[str] | None = []  # lines from before the folder was there

    def open(self) -> None:
        """Write from now on; the folder exists."""
        early, self._early = self._early, None
        self._write("".join(early or []))

    def add(
        self,
        event: str,
        level: Level = "info",
        *,
        role: str = COORDINATOR,
        generation: int = 0,
        **fields: Any,
    ) -> None:
        """Append an event. event: one of those above. fields: what plain JSON can hold."""
        if self._path is None:
            return
        words = {key: _Count(v) if type(v) is int else v for key, v in fields.items()}
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": level,
            "run": self._path.absolute().parent.name,
            "role": role,
            "number": None if (found := _NAME.fullmatch(role)) is None else int(found[1]),
            "generation": generation,
            "event": event,
            "message": _MESSAGES[event].format(role=role, generation=generation, **words),
            "fields": fields,
        }
        text = json.dumps(line, allow_nan=False) + "\n"
        if self._early is None:
            self._write(text)
        else:
            self._early.append(text)

    def add_text(self, event: Literal["notice", "warning"], text: str) -> None:
        """Append a line that was printed. It concerns the process with which it begins."""
        found = _NAME.match(text)
        role = COORDINATOR if found is None else found[0]
        self.add(event, "warning" if event == "warning" else "info", role=role, text=text)

    def add_checkpoint(self, number: int, time_s: float, updates: int) -> None:
        """A checkpoint is complete. time_s: of the run, when it was taken."""
        self.checkpoint, self.failure = LastCheckpoint(number, time_s, time.time()), None
        self.add("checkpoint", number=number, time_s=time_s, updates=updates)

    def add_failure(self, number: int, why: str) -> None:
        """A checkpoint could not be written."""
        self.failure = f"checkpoint {number}: {why}"
        self.add("checkpoint-failed", "warning", number=number, why=why)

    def _write(self, text: str) -> None:
        if self._path is None or not text:
            return
        try:
            with open(self._path, "a", encoding="utf-8", opener=inside) as file:
                file.write(text)
        except OSError as error:
            self._warn(f"cannot write {self._path}: {error.strerror}; the run continues without it")
            self._path = None
