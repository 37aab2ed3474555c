"""Folders of runs made by hand, and a reader of reports."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa

from outpace.record import folder as files
from outpace.record.metrics import METRICS
from outpace.record.recorder import Recorder
from outpace.record.trace import CHECKPOINT, LOSS, RESTART, Trace, trace_table
from outpace.sync.decision import Decision, Reason
from outpace.sync.messages import Push, Reply
from outpace.sync.observer import NO_WORKER, Outcome

MS = 1_000_000  # ns
_GZIP = "H4sI"  # how compressed data begins, in base 64


def make_run(
    folder: Path,
    *,
    accuracy: Sequence[tuple[float, float]] = (),
    config: Mapping[str, Any] | None = None,
    **summary: Any,
) -> Path:
    """Make a run's folder without a trace. accuracy: (time, value) of its evaluations."""
    folder.mkdir(parents=True)
    whole = {
        "status": "complete",
        "error": None,
        "lockstep": False,
        "exchanges": False,
        "virtual_time_s": 10.0,
        "iterations": [10, 10],
        "gradients_applied": 20,
        "delayed_pulls": 4,
        "staleness": {"mean": 0.0, "max": 0, "histogram": {"0": 20}},
        "seconds": {"compute": 5.0, "communicate": 1.0, "wait": 4.0},
        "train_loss": None,
        "accuracy": accuracy[-1][1] if accuracy else None,
        "bytes_sent": 1000,
        **summary,
    }
    base = {"task": {"kind": "digits-mlp"}, "workers": 2, "servers": 1, "seed": 0}
    files.write_config(folder, {**base, "sync": {"kind": "asp"}, **(config or {})})
    files.write_summary(folder, whole)
    rows = [
        {"time_s": time_s, "updates": n, "gradients": n, "train_loss": 1.0, "accuracy": value}
        for n, (time_s, value) in enumerate(accuracy)
    ]
    files.write_table(folder / files.METRICS, pa.Table.from_pylist(rows, schema=METRICS))
    return folder


def write_waiting_trace(folder: Path) -> None:
    """Write a trace: worker 1 waits at server 0 for worker 0 from 110 to 300 ms."""
    sink = trace_table(folder / files.TRACE)
    trace = Trace(sink)
    recorder = Recorder(trace)
    held = Decision(4, Reason.BEYOND_BOUND, lead=3, bound=3)
    at_once = Decision(None, Reason.WITHIN_BOUND, lead=0, bound=3)
    recorder.push_settled(0, Push(1, 3, 0), 110 * MS, 110 * MS, Outcome.APPLIED, 0)
    recorder.pull_answered(Reply(0, 0, 0, 1, 1, 0), 300 * MS, at_once, NO_WORKER)
    recorder.pull_answered(Reply(0, 1, 3, 1, 4, 190 * MS), 110 * MS, held, 0)
    recorder.iteration_finished(0, 0, 0, 290 * MS, 310 * MS, 0, 0)
    recorder.iteration_finished(1, 3, 0, 100 * MS, 310 * MS, 190 * MS, 0)
    trace.flush()
    sink.close()


def write_interrupted_trace(folder: Path) -> None:
    """Write a trace with a lost server, a resume, and lost workers of which 1 is replaced."""
    sink = trace_table(folder / files.TRACE)
    trace = Trace(sink)
    rows = [
        (CHECKPOINT, 750, 750, {"version": 2, "clock": 9}),
        (RESTART, 1000, 1500, {"shard": 0, "iteration": 7, "held_ns": 250 * MS, "version": 2}),
        (RESTART, 2000, 2000, {"iteration": 9, "version": 4}),
        (RESTART, 3000, 3750, {"worker": 1, "iteration": 12}),
        (LOSS, 4000, 4000, {"worker": 0}),
    ]
    for event, start, end, known in rows:
        trace.row(event, start_ns=start * MS, end_ns=end * MS, **known)
    trace.flush()
    sink.close()


class Page(HTMLParser):
    """A parsed report: its elements, the text in each, and the data of its figures."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: set[str] = set()
        self.text = ""  # without scripts and styles
        self.rows: list[list[str]] = []  # of the summary
        self.more: list[list[str]] = []  # of the table of its further columns
        self._open: str | None = None
        self._scripts: list[str] = []
        self._in_summary = False
        self._into = self.rows
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        # No-break spaces count as spaces.
        self.text = " ".join(self.text.split())
        packed = next((s for s in self._scripts if s.startswith(_GZIP)), None)
        text = "{}" if packed is None else gzip.decompress(base64.b64decode(packed)).decode()
        self.figures: dict[str, Any] = json.loads(text)

    @property
    def scripts(self) -> int:
        return len(self._scripts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if attributes.get("id"):
            self.ids.add(str(attributes["id"]))
        if tag in ("script", "style"):
            self._open = tag
        if tag == "script":
            self._scripts.append("")
        if tag == "table":
            self._in_summary = attributes.get("id") in ("summary-table", "more-table")
            self._into = self.more if attributes.get("id") == "more-table" else self.rows
        if self._in_summary and tag == "tr":
            self._into.append([])
        if self._in_summary and tag in ("td", "th"):
            self._into[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._open:
            self._open = None
        if tag == "table":
            self._in_summary = False
        self.text += " "

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self._scripts[-1] += data
        elif self._open is None:
            self.text += data
            if self._in_summary and self._into and self._into[-1]:
                self._into[-1][-1] += data.replace("\N{NO-BREAK SPACE}", " ").strip()

    def cell(self, run: str, column: str) -> str:
        """Return the text of a cell of the summary."""
        titles = [title.lower() for title in self.rows[0]]
        rows = self.rows if column.lower() in titles else self.more
        (row,) = (row for row in rows[1:] if row[0] == run)
        return row[[title.lower() for title in rows[0]].index(column.lower())]
