"""The record of the events of a run: log.jsonl in its folder, one JSON object per line.

Each event is recorded once, by the code that decides it. The counts of the summary, the last
checkpoint in the status, and the rows of the trace about checkpoints and losses are computed from
the events.

Every object has these keys:

    time        when it happened, in UTC
    level       info, warning or error
    run         the name of the run's folder
    role        the process that it concerns: launcher, coordinator, worker-N or server-N
    number      N; null for launcher and coordinator
    generation  of that process: 0 for the first of its name, higher for one that replaces it
    event       start, resume, launched, joined, training, policy, checkpoint, checkpoint-failed,
                lost, restarted, began, without, scaling, scaled, answer, elastic,
                group-restart, begin-anew, failed, finished, notice, warning or end
    message     the event, as text
    fields      further facts, by name

The launcher is the process of the command, which also contains the coordinator.

Lines are only appended, even when a run is resumed in its folder.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

from outpace.record.status import CheckpointStatus
from outpace.record.tables import NONE
from outpace.record.trace import CHECKPOINT, LOSS, RESTART, TraceRows
from outpace.support.regular_files import inside
from outpace.support.units import Time, seconds
from outpace.support.words import plural

LAUNCHER: Final = "launcher"
COORDINATOR: Final = "coordinator"
Level: TypeAlias = Literal["info", "warning", "error"]


_MESSAGES: Final = {
    "start": "the run begins: {workers:worker}, {servers:server}",
    "resume": "the run is resumed from checkpoint {number}: {workers:worker}, {servers:server}",
    "launched": "{processes:process is|processes are} started",
    "joined": "{role} has joined, process {process}",
    "training": "the training begins at {time_s:.3f} s of the run",
    "policy": "{role} follows {kind} from {time_s:.3f} s of the run",
    "checkpoint": "checkpoint {number}, of {time_s:.3f} s of the run, is complete",
    "checkpoint-failed": "checkpoint {number} is missing: {why}",
    "lost": "{why}",
    "restarted": "{role} is started again at iteration {first}, generation {generation}",
    "began": "{role} has begun again at {time_s:.3f} s of the run",
    "without": "the run continues without {role}",
    "scaling": "{cause}; all processes begin again from checkpoint {number}",
    "scaled": "the run continues with {workers:worker} and {servers:server}, after {took_s:.2f} s",
    "answer": "{text}",
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
    """A number that is formatted together with its noun, such as {workers:worker}."""

    def __format__(self, nouns: str) -> str:
        noun, _, several = nouns.partition("|")
        return plural(int(self), noun, several) if noun else str(int(self))


class Recovery(msgspec.Struct, kw_only=True):
    """The counts of a run over all its sessions.

    Attributes:
        restarts: number of processes that were restarted; a restart of all processes counts as one.
        updates_lost: number of workers' iterations whose gradient is missing in the result of some
            server, although the worker had sent it, or because it could no longer send it.
        resumed_from: the checkpoint of the last resume, below the folder of the run.
        without: number of workers that were lost, and without which the run continued.
        scalings: the numbers of workers and servers with which the run continued.
    """

    restarts: int = 0
    updates_lost: int = 0
    resumed_from: str | None = None
    without: list[int] = []
    scalings: list[tuple[int, int]] = []

    def summary(self) -> dict[str, Any]:
        """Return the part of summary.json about failures."""
        return {
            "restarts": self.restarts,
            "updates_lost": self.updates_lost,
            "resumed_from": self.resumed_from,
            "scalings": [list(numbers) for numbers in self.scalings],
        }

    def take(self, event: str, worker: int | None, fields: Mapping[str, Any]) -> None:
        """Count an event. worker: the number of the worker that it concerns."""
        match event:
            case "restarted":
                self.restarts += 1
                self.updates_lost += fields["updates_lost"]
            case "without" if worker is not None:
                self.without.append(worker)
                self.updates_lost += fields["updates_lost"]
            case "group-restart" | "begin-anew":
                self.restarts += 1
                self.updates_lost = fields["updates_lost"]
            case "scaling":
                self.updates_lost = fields["updates_lost"]
            case "scaled":
                self.scalings.append((fields["workers"], fields["servers"]))


class EventRows:
    """The rows of the trace about checkpoints, losses and restarts.

    If all processes begin again, the trace goes back to a checkpoint, except for these rows.

    Args:
        trace: takes the rows of checkpoints and resumes.
        rows: takes the other rows, which may be held until the next checkpoint.
    """

    def __init__(self, trace: TraceRows, rows: TraceRows) -> None:
        self._trace, self._rows = trace, rows
        self._began: Time = 0  # time when all processes last began
        self._known: list[tuple[int, dict[str, int]]] = []
        self._lost: dict[int, Time] = {}  # lost workers that may be replaced: time of the loss
        self._first: dict[int, int] = {}  # by worker: the first iteration of its new process
        # The rows of a loss after which all processes begin again, without their ends.
        self._begins_again: list[dict[str, int]] = []

    def take(self, event: str, worker: int | None, fields: Mapping[str, Any]) -> None:
        """Write the rows that follow from an event. worker: the worker that the event concerns."""
        time_ns: Time = fields.get("time_ns", 0)
        match event:
            case "checkpoint":
                known = {"version": fields["number"], "clock": fields["updates"]}
                self._trace.row(CHECKPOINT, start_ns=time_ns, end_ns=time_ns, **known)
            case "resume":
                known = {"version": fields["number"], "clock": fields["anew"] or NONE}
                known["iteration"] = min(fields["first"])
                self._trace.row(RESTART, start_ns=time_ns, end_ns=time_ns, **known)
            case "group-restart" | "scaling":
                self._go_back(time_ns, fields)
            case "training":
                self._began = time_ns
                for row in self._begins_again:
                    self._add(RESTART, **row, end_ns=max(time_ns, row["start_ns"]))
                self._begins_again.clear()
        if worker is None:
            return
        match event:
            case "lost":
                self._lost[worker] = fields["lost_ns"]
            case "without":
                at = self._lost.pop(worker, time_ns)
                self._add(LOSS, worker=worker, start_ns=at, end_ns=at)
            case "restarted":
                self._first[worker] = fields["first"]
            case "began":
                at, first = self._lost.pop(worker, time_ns), self._first.pop(worker, 0)
                self._add(RESTART, worker=worker, iteration=first, start_ns=at, end_ns=time_ns)

    def _go_back(self, time_ns: Time, fields: Mapping[str, Any]) -> None:
        self._lost.clear()
        self._first.clear()
        for event, row in self._known:
            if row["end_ns"] > time_ns:
                self._rows.row(event, **row)
        for name in fields["lost"]:
            kind, _, number = name.rpartition("-")
            since = max(time_ns, self._began)  # no iteration was done between the two
            row = {
                "shard" if kind == "server" else "worker": int(number),
                "iteration": fields["first"],
                "start_ns": fields["lost_ns"],
                "held_ns": max(0, fields["lost_ns"] - since),
                "version": fields["number"],
                "clock": fields["anew"] or NONE,
            }
            self._begins_again.append(row)

    def _add(self, event: int, **row: int) -> None:
        self._known.append((event, row))
        self._rows.row(event, **row)


class EventLog:
    """The events of one run, and the counts that are made from them.

    Nothing is written before `open`, because the folder may not exist yet.

    Args:
        path: the file; None: nothing is written.
        warn: called once, with a line for the user, if the file cannot be written.
        recovery: the counts of the run until now.

    Attributes:
        recovery: these counts with the events of this session.
        checkpoint: the last checkpoint.
        elastic: text about the last change because nodes came or went; empty: there was none.
        generations: the generation of each process that was started again, by name.
    """

    def __init__(
        self,
        path: Path | None = None,
        warn: Callable[[str], object] = lambda _: None,
        recovery: Recovery | None = None,
    ) -> None:
        self.recovery = recovery or Recovery()
        self.checkpoint = CheckpointStatus()
        self.elastic = ""
        self.generations: dict[str, int] = {}
        self._rows: EventRows | None = None
        self._path, self._warn = path, warn
        self._early: list[str] | None = []  # lines from before the folder existed

    def open(self) -> None:
        """Write to the file from now on, because the folder exists."""
        early, self._early = self._early, None
        self._write("".join(early or []))

    def write_rows(self, trace: TraceRows, rows: TraceRows) -> None:
        """Write the rows of later events; see `EventRows`."""
        self._rows = EventRows(trace, rows)

    def add(
        self, event: str, level: Level = "info", *, role: str = COORDINATOR, **fields: Any
    ) -> None:
        """Append an event.

        Args:
            event: one of the events listed above.
            fields: values that plain JSON can represent. A time `x_ns` of the run is written as
                `x_s`.
        """
        found = _NAME.fullmatch(role)
        number = None if found is None else int(found[1])
        worker = number if role.startswith("worker") else None
        self._take(event, role, fields)
        self.recovery.take(event, worker, fields)
        if self._rows is not None:
            self._rows.take(event, worker, fields)
        if self._path is None:
            return
        written = {
            f"{key[:-3]}_s" if key.endswith("_ns") else key: seconds(value)
            if key.endswith("_ns")
            else value
            for key, value in fields.items()
        }
        words = {key: _Count(v) if type(v) is int else v for key, v in written.items()}
        generation = self.generations.get(role, 0)
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": level,
            "run": self._path.absolute().parent.name,
            "role": role,
            "number": number,
            "generation": generation,
            "event": event,
            "message": _MESSAGES[event].format(role=role, **{"generation": generation} | words),
            "fields": written,
        }
        text = json.dumps(line, allow_nan=False) + "\n"
        if self._early is None:
            self._write(text)
        else:
            self._early.append(text)

    def add_text(self, event: Literal["notice", "warning"], text: str) -> None:
        """Append a printed line. It concerns the process whose name it begins with."""
        found = _NAME.match(text)
        role = COORDINATOR if found is None else found[0]
        self.add(event, "warning" if event == "warning" else "info", role=role, text=text)

    def _take(self, event: str, role: str, fields: Mapping[str, Any]) -> None:
        match event:
            case "checkpoint":
                known = {"number": fields["number"], "time_s": seconds(fields["time_ns"])}
                self.checkpoint = CheckpointStatus(**known, written=time.time())
            case "checkpoint-failed":
                self.checkpoint.failure = f"checkpoint {fields['number']}: {fields['why']}"
            case "resume":
                self.checkpoint = CheckpointStatus(number=fields["number"])
            case "elastic":
                self.elastic = fields["why"]
            case "restarted":
                self.generations[role] = fields["generation"]
            case "group-restart" | "scaling" | "begin-anew":
                self.generations.clear()

    def _write(self, text: str) -> None:
        if self._path is None or not text:
            return
        try:
            with open(self._path, "a", encoding="utf-8", opener=inside) as file:
                file.write(text)
        except OSError as error:
            self._warn(f"cannot write {self._path}: {error.strerror}; the run continues without it")
            self._path = None
