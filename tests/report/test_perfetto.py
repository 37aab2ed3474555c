"""The file for Perfetto: read back packet by packet and held against the run."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from handmade import MS, make_run, write_waiting_trace
from typer.testing import CliRunner, Result

from outpace.cli import app
from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.record import folder as files
from outpace.record.trace import ParquetSink, Trace
from outpace.report.perfetto import export as module
from outpace.report.perfetto.export import PERFETTO, write_perfetto
from outpace.sync.decision import Decision, Reason
from outpace.sync.shard import NOBODY, Outcome


@dataclass
class Slice:
    place: int  # in the file
    name: str
    start: int
    args: dict[str, int | str]
    starts: list[int]
    ends: list[int]
    end: int | None = None


@dataclass
class Drawn:
    """A file read back; tracks by path, as in `servers/server-0/pushes`."""

    slices: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    instants: dict[str, list[Slice]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    tracks: list[str] = field(default_factory=list)

    def spans(self, track: str) -> list[tuple[str, int, int | None]]:
        return [(s.name, s.start, s.end) for s in self.slices[track]]

    def arrows(self) -> set[tuple[str, int, str, int]]:
        """(track, time) of the mark where it starts -> (track, start) of the slice it ends at."""
        marks = {flow: (track, s) for track, marks in self.instants.items() for s in marks
                 for flow in s.starts}  # fmt: skip
        ends = [
            (s.ends[0], track, s) for track in self.slices for s in self.slices[track] if s.ends
        ]
        assert len({flow for flow, *_ in ends}) == len(ends)
        for flow, _, s in ends:  # Perfetto sorts by time, keeping the order of equal ones
            assert (marks[flow][1].start, marks[flow][1].place) < (s.start, s.place)
        return {(marks[f][0], marks[f][1].start, track, s.start) for f, track, s in ends}


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Of a protobuf message: number and value."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (value >> 63 << 64)

    while at < len(data):
        tag = varint()
        kind = tag & 7
        if kind == 0:
            yield tag >> 3, varint()
        else:
            length = {1: lambda: 8, 2: varint}[kind]()
            assert at + length <= len(data)
            value = data[at : at + length]
            yield tag >> 3, value if kind == 2 else int.from_bytes(value, "little")
            at += length


def read(path: Path) -> Drawn:
    """Numbers as in perfetto_trace.proto. Slices of a track must follow one another."""
    drawn = Drawn()
    paths: dict[int, str] = {}
    open_: dict[int, Slice | None] = {}
    latest: dict[int, int] = defaultdict(int)
    for place, (number, packet) in enumerate(fields(gzip.decompress(path.read_bytes()))):
        assert number == 1
        content = dict(fields(packet))
        assert content[10] == 1
        if 60 in content:
            track = dict(fields(content[60]))
            name = track[2].decode()
            paths[track[1]] = f"{paths[track[5]]}/{name}" if 5 in track else name
            drawn.tracks.append(paths[track[1]])
            continue
        at, event = content[8], list(fields(content[11]))
        of = dict(event)
        track, kind = of[11], of[9]
        if kind == 4:
            drawn.counts[paths[track]].append((at, of[30]))
            continue
        if kind != 3:
            assert at >= latest[track]
            latest[track] = at
        if kind == 2:
            slice_ = open_.pop(track)
            assert slice_ is not None
            slice_.end = at
            continue
        args = {}
        for note in (dict(fields(value)) for number, value in event if number == 4):
            args[note[10].decode()] = note[4] if 4 in note else note[6].decode()
        starts, ends = ([v for number, v in event if number == flow] for flow in (47, 48))
        one = Slice(place, of[23].decode(), at, args, starts, ends)
        if kind == 3:
            drawn.instants[paths[track]].append(one)
        else:
            assert track not in open_
            open_[track] = one
            drawn.slices[paths[track]].append(one)
    return drawn


def export(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["export", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


@pytest.fixture
def waiting(tmp_path):
    """Worker 1 waits from 110 to 300 ms, see `write_waiting_trace`."""
    write_waiting_trace(make_run(tmp_path / "run"))
    return tmp_path / "run"


def test_a_wait_is_drawn_with_its_cause(waiting):
    write_perfetto(waiting, waiting / "out.gz")
    drawn = read(waiting / "out.gz")
    assert drawn.spans("workers/worker-0") == [
        ("compute", 0, 290 * MS), ("communicate", 290 * MS, 310 * MS),
    ]  # fmt: skip
    assert drawn.spans("workers/worker-1") == [
        ("compute", 0, 100 * MS),
        ("communicate", 100 * MS, 110 * MS),
        ("wait for server-0", 110 * MS, 300 * MS),
        ("communicate", 300 * MS, 310 * MS),
    ]
    common = {"iteration": 3, "last shard": "server-0"}
    args = [s.args for s in drawn.slices["workers/worker-1"]]
    assert args == [common, common, {**common, "released by": "worker-0"}, common]
    assert drawn.arrows() == {("workers/worker-0", 300 * MS, "workers/worker-1", 300 * MS)}
    (release,) = drawn.instants["workers/worker-0"]
    assert (release.name, release.args) == ("release", {"server": "server-0", "workers": 1})
    (hold,) = drawn.slices["servers/server-0/held pulls"]
    assert (hold.name, hold.start, hold.end) == ("hold worker-1", 110 * MS, 300 * MS)
    assert hold.args == {
        "iteration": 3, "reason": "beyond-bound", "lead": 3, "bound": 3, "released by": "worker-0",
    }  # fmt: skip
    (push,) = drawn.instants["servers/server-0/pushes"]
    assert (push.name, push.start) == ("push worker-1", 110 * MS)
    assert push.args == {
        "iteration": 3, "version": 0, "staleness": 0, "outcome": "applied", "settled after ns": 0,
    }  # fmt: skip
    assert drawn.counts == {
        "servers/server-0/staleness": [(110 * MS, 0)],
        "servers/server-0/clock": [(300 * MS, 1), (300 * MS, 4)],
    }


@pytest.mark.parametrize("name", ["BSP", "SSP", "ASP", "timing", "failed"])
def test_it_shows_what_the_summary_says(simulated, tmp_path, name):
    run, out = simulated[name], tmp_path / "out.gz"
    write_perfetto(run, out)
    drawn, summary = read(out), json.loads((run / files.SUMMARY).read_text())
    sums: Counter[str] = Counter()
    for track, slices in drawn.slices.items():
        if track.startswith("workers/"):
            for before, after in itertools.pairwise(slices):
                assert before.end is not None
                assert before.end <= after.start
            for s in slices:
                sums[s.name.split()[0]] += (s.end or 0) - s.start
    for part in ("compute", "communicate", "wait"):
        assert sums[part] / 1e9 / 4 == pytest.approx(summary["seconds"][part], abs=1e-9)
    held = [s for track in drawn.slices if track.startswith("servers") for s in drawn.slices[track]]
    assert len(held) == summary["delayed_pulls"]
    pushes = [s for track in drawn.instants for s in drawn.instants[track] if "push" in s.name]
    applied = Counter(str(s.args["staleness"]) for s in pushes if s.args["outcome"] == "applied")
    assert applied == summary["staleness"]["histogram"]
    trace = pq.read_table(run / files.TRACE).to_pylist()
    assert len(pushes) == sum(row["event"] == "push" for row in trace)
    assert [v for _, v in drawn.counts["servers/server-1/clock"]] == list(
        dict.fromkeys(r["clock"] for r in trace if r["event"] == "pull" and r["shard"] == 1
                      and r["clock"] is not None)
    )  # fmt: skip


@pytest.mark.parametrize("name", ["BSP", "SSP"])
def test_arrows_say_who_released_whom(simulated, tmp_path, name):
    run, out = simulated[name], tmp_path / "out.gz"
    write_perfetto(run, out)
    trace = pq.read_table(run / files.TRACE).to_pylist()
    iterations = [row for row in trace if row["event"] == "iteration"]
    last = {(r["worker"], r["iteration"]): r["shard"] for r in iterations}
    expected = set()
    for pull in trace:
        if pull["event"] != "pull" or pull["released_by"] is None:
            continue
        at, by = pull["end_ns"], pull["released_by"]
        if last.get((pull["worker"], pull["iteration"])) == pull["shard"]:
            expected.add((f"workers/worker-{by}", at, f"workers/worker-{pull['worker']}", at))
    assert expected
    drawn = read(out)
    assert drawn.arrows() == expected
    marks = [s for track in drawn.instants for s in drawn.instants[track] if s.name == "release"]
    assert Counter((s.args["server"], s.start, s.args["workers"]) for s in marks) == Counter(
        (f"server-{shard}", at, count) for (shard, at), count in Counter(
            (row["shard"], row["end_ns"]) for row in trace if row["released_by"] is not None
        ).items()
    )  # fmt: skip


def test_a_run_cut_short_keeps_its_open_waits_and_has_no_loose_arrows(tmp_path):
    config = {
        "task": {"kind": "timing"}, "workers": 4, "servers": 2, "sync": {"kind": "bsp"},
        "compute": {"kind": "constant", "mean_s": 0.1, "slow": [{"workers": [0], "factor": 3.0}]},
        "stop": {"virtual_time_s": 0.75},
    }  # fmt: skip
    simulate(config, tmp_path / "run")
    write_perfetto(tmp_path / "run", tmp_path / "out.gz")
    drawn = read(tmp_path / "out.gz")
    held = drawn.slices["servers/server-1/held pulls"]
    assert sorted(s.name for s in held if s.end is None) == [f"hold worker-{n}" for n in (1, 2, 3)]
    assert all("released by" not in s.args for s in held if s.end is None)
    assert len(drawn.arrows()) == 6


def test_the_clock_of_a_server_may_differ_from_that_of_its_workers(tmp_path):
    run = make_run(tmp_path / "run")
    sink = ParquetSink(run / files.TRACE)
    trace = Trace(sink)
    held = Decision(1, Reason.BEYOND_BOUND, lead=1, bound=1)
    for worker, skew in enumerate((-1000, 1000)):
        trace.pull(0, worker, 0, (skew + 1110) * MS, (skew + 1150) * MS, 1, 1, held, 9)
        trace.iteration(worker, 0, 1000 * MS, 1100 * MS, 1200 * MS, 40 * MS, 0)
    trace.push(0, 9, 0, 5, 2**62, 0, Outcome.DROPPED, -1)
    trace.pull(0, 9, 0, 5, 2**62, 0, -1, Decision(None, Reason.UNBOUNDED, lead=-1), NOBODY)
    trace.flush()
    sink.close()
    write_perfetto(run, tmp_path / "out.gz")
    drawn = read(tmp_path / "out.gz")
    waits = {track: s for track in drawn.slices for s in drawn.slices[track] if "wait" in s.name}
    assert [(s.start // MS, (s.end or 0) // MS) for s in waits.values()] == [
        (1100, 1140), (1160, 1200),
    ]  # fmt: skip
    (push,) = drawn.instants["servers/server-0/pushes"]
    assert push.args.keys() == {"iteration", "version", "outcome", "settled after ns"}
    assert {end for *_, end, _ in drawn.arrows()} == {"workers/worker-0"}
    assert drawn.counts["servers/server-0/clock"] == [(1150 * MS - 1000 * MS, 1), (2**62, -1)]


def test_a_wait_whose_pull_is_missing_is_drawn_at_the_end(waiting, tmp_path):
    rows = pq.read_table(waiting / files.TRACE)
    pq.write_table(rows.filter(pc.field("event") != "pull"), waiting / files.TRACE)
    write_perfetto(waiting, tmp_path / "out.gz")
    *_, before, wait = read(tmp_path / "out.gz").slices["workers/worker-1"]
    assert (before.name, wait.name) == ("communicate", "wait for server-0")
    assert (wait.start, wait.end) == (120 * MS, 310 * MS)
    assert "released by" not in wait.args


@pytest.mark.parametrize("name", ["BSP", "SSP", "failed"])
@pytest.mark.parametrize("order", [("iteration", "pull", "push"), ("push", "pull", "iteration")])
def test_rows_of_workers_and_servers_may_come_in_any_order(simulated, tmp_path, name, order):
    run = make_run(tmp_path / "run")
    rows = pq.read_table(simulated[name] / files.TRACE)
    kinds = rows["event"].to_pylist()
    places = sorted(range(len(kinds)), key=lambda place: order.index(kinds[place]))
    pq.write_table(rows.take(places), run / files.TRACE)
    write_perfetto(simulated[name], tmp_path / "a.gz")
    write_perfetto(run, tmp_path / "b.gz")
    one, other = read(tmp_path / "a.gz"), read(tmp_path / "b.gz")
    assert one.arrows() == other.arrows()
    assert one.counts == other.counts
    assert {t: one.spans(t) for t in one.slices} == {t: other.spans(t) for t in other.slices}
    for track in one.slices:
        assert [s.args for s in one.slices[track]] == [s.args for s in other.slices[track]]


def test_batches_make_no_difference(simulated, tmp_path, monkeypatch):
    write_perfetto(simulated["SSP"], tmp_path / "a.gz")
    monkeypatch.setattr(module, "_BATCH", 7)
    write_perfetto(simulated["SSP"], tmp_path / "b.gz")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_the_command_says_what_it_wrote(waiting, tmp_path):
    result = export(waiting, "--perfetto")
    assert result.exit_code == 0, result.stderr
    path = waiting / PERFETTO
    assert (
        result.stdout == f"{path} ({path.stat().st_size} B): open it at https://ui.perfetto.dev\n"
    )
    other = tmp_path / "other.gz"
    assert export(waiting, "--perfetto", "--out", other).exit_code == 0
    assert other.read_bytes() == path.read_bytes()
    assert set(read(path).tracks) >= {"workers/worker-1", "servers/server-0/held pulls"}


@pytest.mark.parametrize("damage", ["absent", "garbage", "cut", "a column less", "nonsense"])
def test_a_damaged_trace_is_named_and_nothing_is_written(waiting, damage):
    path = waiting / files.TRACE
    whole, rows = path.read_bytes(), pq.read_table(path)
    path.unlink()
    if damage == "garbage":
        path.write_bytes(b"\xff\n[" * 99)
    elif damage == "cut":
        path.write_bytes(whole[:-9])
    elif damage == "a column less":
        pq.write_table(rows.drop_columns(["lead"]), path)
    elif damage == "nonsense":
        place = rows.column_names.index("end_ns")
        pq.write_table(rows.set_column(place, "end_ns", rows["computed_ns"]), path)
    before = sorted(waiting.iterdir())
    result = export(waiting, "--perfetto")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {path}: ")
    assert sorted(waiting.iterdir()) == before


def test_wrong_calls_are_refused(waiting, tmp_path):
    result = export(waiting)
    assert (result.exit_code, "--perfetto" in result.stderr) == (2, True)
    result = export(tmp_path, "--perfetto")
    assert (result.exit_code, "is not the folder of a run" in result.stderr) == (2, True)
    result = export(waiting, "--perfetto", "--out", tmp_path / "no" / "file.gz")
    assert (result.exit_code, "cannot write" in result.stderr) == (2, True)
    with pytest.raises(ConfigError, match="is not the folder of a run"):
        write_perfetto(tmp_path / "nowhere", tmp_path / "out.gz")
    assert not list(tmp_path.glob("*.part"))
