"""The file for Perfetto: read packet by packet and compared with the run."""

from __future__ import annotations

import pytest
from tests.support.reports.perfetto import read
from tests.support.reports.run_folders import (
    MS,
    make_run,
    write_interrupted_trace,
    write_waiting_trace,
)
from typer.testing import CliRunner, Result

from outpace.cli import app
from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.record import folder as files
from outpace.record.recorder import Recorder
from outpace.record.trace import Trace, trace_table
from outpace.report.perfetto import PERFETTO, write_perfetto
from outpace.sync.decision import Decision, Reason
from outpace.sync.messages import Push, Reply
from outpace.sync.observer import NO_WORKER, Outcome


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
        ("compute", 0, 290 * MS),
        ("communicate", 290 * MS, 310 * MS),
    ]
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
        "iteration": 3,
        "reason": "beyond-bound",
        "lead": 3,
        "bound": 3,
        "released by": "worker-0",
    }
    (push,) = drawn.instants["servers/server-0/pushes"]
    assert (push.name, push.start) == ("push worker-1", 110 * MS)
    assert push.args == {
        "iteration": 3,
        "version": 0,
        "staleness": 0,
        "outcome": "applied",
        "settled after ns": 0,
    }


def test_a_run_cut_short_keeps_its_open_waits_and_has_no_loose_arrows(tmp_path):
    config = {
        "task": {"kind": "timing"},
        "workers": 4,
        "servers": 2,
        "sync": {"kind": "bsp"},
        "compute": {"kind": "constant", "mean_s": 0.1, "slow": [{"workers": [0], "factor": 3.0}]},
        "stop": {"virtual_time_s": 0.75},
    }
    simulate(config, tmp_path / "run")
    write_perfetto(tmp_path / "run", tmp_path / "out.gz")
    drawn = read(tmp_path / "out.gz")
    held = drawn.slices["servers/server-1/held pulls"]
    assert sorted(s.name for s in held if s.end is None) == [f"hold worker-{n}" for n in (1, 2, 3)]
    assert all("released by" not in s.args for s in held if s.end is None)
    assert len(drawn.arrows()) == 6


def test_the_clock_of_a_server_may_differ_from_that_of_its_workers(tmp_path):
    run = make_run(tmp_path / "run")
    sink = trace_table(run / files.TRACE)
    trace = Trace(sink)
    recorder = Recorder(trace)
    held = Decision(1, Reason.BEYOND_BOUND, lead=1, bound=1)
    for worker, skew in enumerate((-1000, 1000)):
        recorder.pull_answered(Reply(0, worker, 0, 1, 1, 40 * MS), (skew + 1110) * MS, held, 9)
        recorder.iteration_finished(worker, 0, 1000 * MS, 1100 * MS, 1200 * MS, 40 * MS, 0)
    recorder.push_settled(0, Push(9, 0, 0), 5, 2**62, Outcome.DROPPED, -1)
    at_once = Decision(None, Reason.UNBOUNDED, lead=-1)
    recorder.pull_answered(Reply(0, 9, 0, 0, -1, 2**62 - 5), 5, at_once, NO_WORKER)
    trace.flush()
    sink.close()
    write_perfetto(run, tmp_path / "out.gz")
    drawn = read(tmp_path / "out.gz")
    waits = {track: s for track in drawn.slices for s in drawn.slices[track] if "wait" in s.name}
    assert [(s.start // MS, (s.end or 0) // MS) for s in waits.values()] == [
        (1100, 1140),
        (1160, 1200),
    ]
    (push,) = drawn.instants["servers/server-0/pushes"]
    assert push.args.keys() == {"iteration", "version", "outcome", "settled after ns"}
    assert {end for *_, end, _ in drawn.arrows()} == {"workers/worker-0"}


def test_checkpoints_and_interruptions_have_a_track(tmp_path):
    run = make_run(tmp_path / "run")
    write_interrupted_trace(run)
    write_perfetto(run, tmp_path / "out.gz")
    drawn = read(tmp_path / "out.gz")
    assert drawn.spans("servers/run") == [
        ("server-0 is restarted", 1000 * MS, 1500 * MS),
        ("worker-1 is restarted", 3000 * MS, 3750 * MS),
    ]
    names = [mark.name for mark in drawn.instants["servers/run"]]
    assert names == ["checkpoint 2", "run resumed", "worker-0 lost"]


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
