"""Runs in virtual time that are interrupted and continue from a checkpoint."""

from __future__ import annotations

import errno
import json
import os
import signal

import pyarrow.parquet as pq
import pytest
from tests.support.command import outpace as command
from tests.support.command import refused
from tests.support.fluentps import behind_barrier, ssptable

import outpace
from outpace.errors import OutpaceWarning
from outpace.experiment import recorded_run, running
from outpace.record import folder as files
from outpace.record.checkpoints import RunLock, folder
from outpace.record.trace import Trace

CONFIG = {
    "seed": 3,
    "task": {"kind": "quadratic", "eigenvalues": [0.1, 0.2, 0.4, 0.8, 1.0, 1.5], "noise": 0.1},
    "workers": 3,
    "servers": 2,
    "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.3},
    "network": {"latency_s": 0.001, "bandwidth_bytes_per_s": 1e6},
    "sync": {"kind": "bsp"},
    "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
    "evaluate": {"every_updates": 5},
    "stop": {"iterations": 24},
}
HALF_S = 1.5  # of virtual time; the runs take about 3 s


@pytest.fixture(autouse=True)
def without_what_takes_most_of_the_time(monkeypatch):
    monkeypatch.setattr(recorded_run.RecordedRun, "_report", lambda *_: None)
    monkeypatch.setattr(os, "fsync", lambda _: None)


def interrupted(out, at_s=HALF_S, every_updates=7, resume=None, **changes):
    """Leave the folder of a run that failed at this time."""

    def control(run):
        def fail():
            raise outpace.RunError("the power is off")

        run.at(at_s, fail)

    config = {**CONFIG, "checkpoint": {"every_updates": every_updates}, **changes}
    given = {"resume": out} if resume else {"experiment": config, "out": out}
    with pytest.raises(outpace.RunError, match="the power is off"):
        outpace.simulate(**given, control=control)
    return out


def pushes(trace):
    """Return (worker, iteration, shard) of each gradient that was applied."""
    return [
        (row["worker"], row["iteration"], row["shard"])
        for row in trace.to_pylist()
        if row["event"] == "push" and row["outcome"] == "applied"
    ]


SCHEDULED = {"lr": 0.05, "momentum": 0.9, "schedule": {"kind": "cosine", "iterations": 24}}


@pytest.mark.parametrize("optimizer", [{"kind": "sgd", **SCHEDULED}, {"kind": "adam", "lr": 0.01}])
def test_bsp_that_goes_on_is_bitwise_the_run_without_interruption(tmp_path, optimizer):
    changes = {"optimizer": optimizer}
    expected = outpace.simulate({**CONFIG, **changes})
    result = outpace.simulate(resume=interrupted(tmp_path / "run", **changes))
    summary = result.summary
    assert summary["status"] == "complete"
    assert summary["resumed_from"] == "checkpoints/000002"  # at update 7; the first is at the start
    assert (summary["restarts"], summary["updates_lost"]) == (0, 0)
    same = ("parameters_digest", "iterations", "gradients_applied", "train_loss", "staleness")
    assert {key: summary[key] for key in same} == {key: expected.summary[key] for key in same}
    columns = ["updates", "gradients", "train_loss", "batch_loss"]
    assert result.metrics.select(columns) == expected.metrics.select(columns)
    times = result.metrics["time_s"].to_pylist()
    assert times == sorted(times)
    assert sorted(pushes(result.trace)) == sorted(pushes(expected.trace))
    assert not (tmp_path / "run" / "trace").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"sync": {"kind": "ssp", "staleness": 1, "apply": "on-advance"}},
        {"sync": {"kind": "drop-stragglers", "quorum": 2}},
        {"sync": {"kind": "cutoff"}},
        {"sync": ssptable(1)},
        {"sync": behind_barrier("ssp", staleness=1)},
        {"sync": {"kind": "asp"}, "push_time": {"kind": "constant", "mean_s": 0.002}},
    ],
)
def test_other_strategies_go_on_to_the_end_and_apply_no_gradient_twice(tmp_path, changes):
    run = interrupted(tmp_path / "run", **changes)
    saved = Trace()
    result = outpace.simulate(resume=run)
    assert result.summary["status"] == "complete"
    assert result.summary["resumed_from"]
    applied = pushes(result.trace)
    assert len(applied) == len(set(applied))
    for worker in range(3):  # workers whose last iteration has reached both servers
        last = [shard for who, iteration, shard in applied if (who, iteration) == (worker, 23)]
        assert sorted(last) == [0, 1] or "quorum" in changes["sync"]
    saved.take_up(pq.read_table(run / files.TRACE).to_batches())
    assert saved.digest() == result.summary["trace_digest"]
    times = result.metrics["time_s"].to_pylist()
    assert times == sorted(times)


def test_a_run_can_go_on_again_and_again_and_pass_over_a_damaged_checkpoint(tmp_path):
    expected = outpace.simulate(CONFIG)
    run = interrupted(tmp_path / "run", at_s=1.2, every_updates=3)
    interrupted(run, at_s=2.2, resume=True)
    newest = sorted((run / "checkpoints").iterdir())[-1]
    (newest / "server-1.safetensors").write_bytes(b"damaged")
    with pytest.warns(OutpaceWarning, match=r"server-1\.safetensors is damaged"):
        result = outpace.simulate(resume=run)
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert sorted(pushes(result.trace)) == sorted(pushes(expected.trace))


def test_a_checkpoint_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    expected = outpace.simulate(CONFIG)
    monkeypatch.setattr(folder, "write_bytes", full)
    with pytest.warns(OutpaceWarning, match="No space left on device") as warned:
        result = outpace.simulate(CONFIG, tmp_path / "run", checkpoint={"every_updates": 5})
    said = (
        "cannot write checkpoint 1 (No space left on device); the run continues, there is none yet"
    )
    assert [str(warning.message) for warning in warned] == [said]
    assert result.summary["warnings"] == [said]
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_sigusr1_takes_a_checkpoint(tmp_path):
    def control(run):
        run.at(HALF_S, lambda: signal.raise_signal(signal.SIGUSR1))

    run = tmp_path / "run"
    outpace.simulate(CONFIG, run, control=control, checkpoint={"every_s": 100})
    indices = [json.loads(path.read_text())["index"] for path in run.glob("*/*/index.json")]
    times = sorted(index["now"] / 1e9 for index in indices)
    assert times[0] == 0
    assert HALF_S < times[1] < HALF_S + 0.3  # where the next iteration begins
    assert len(times) == 2


def test_what_cannot_be_resumed(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = interrupted(tmp_path / "run")

    def fails(*_, **__):
        raise outpace.RunError("the loss became inf")

    def problem(*arguments):
        return refused(capsys, "simulate", "--resume", *arguments)

    for other in ("nothing", "run/checkpoints"):
        assert f"{other} is not the folder of a run that can be resumed" in problem(other)
    assert "continues the run as it is in DIR: leave out CONFIG" in problem("run", "my.yaml")
    assert "leave out --out" in problem("run", "--out", "other")
    changed = problem("run", "sync.kind=asp")
    assert "sync.kind cannot change (bsp in run/config.yaml, asp given)" in changed
    assert "seed cannot change (3 in run/config.yaml, 4 given)" in problem("run", "--seed", "4")
    of_other = refused(capsys, "run", "--resume", "run")
    assert "run is of outpace simulate: use outpace simulate --resume run" in of_other
    with monkeypatch.context() as patch:
        patch.setattr(running, "simulate", fails)
        assert command("simulate", "--resume", "run") == 1
        assert (
            "to resume from checkpoint 2: outpace simulate --resume run" in capsys.readouterr().err
        )
    with RunLock(run):
        assert f"this run is running (process {os.getpid()}" in problem("run")
    with pytest.raises(outpace.ConfigError, match="leave experiment and out out"):
        outpace.simulate(CONFIG, resume=run)
    segment = run / "trace" / "000001.parquet"
    segment.rename(tmp_path / "elsewhere")
    assert "000001.parquet (No such file or directory): without the records" in problem("run")
    results = sorted(path.name for path in run.iterdir())
    segment.write_bytes(b"PAR1 and then nothing that belongs there")
    assert "the records of the run in run are damaged" in problem("run")
    assert sorted(path.name for path in run.iterdir()) == results
    (tmp_path / "elsewhere").rename(segment)
    summary = files.read_summary(run)
    times = {"wall_time_s": summary.pop("virtual_time_s")}
    files.write_summary(run, {**summary, **times})
    assert "is of outpace run: use outpace run --resume run" in problem("run")
    files.write_summary(run, summary | {"status": "complete"})
    assert "this run is complete; there is nothing to resume" in problem("run")
    outpace.simulate(CONFIG, tmp_path / "without", stop={"iterations": 1})
    partial = {**files.read_summary(tmp_path / "without"), "status": "partial"}
    files.write_summary(tmp_path / "without", partial)
    assert "no checkpoint: the run was made without `checkpoint`" in problem("without")


def test_the_same_command_again_without_resume_is_refused_and_leaves_the_run_as_it_is(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = interrupted(tmp_path / "run")
    (tmp_path / "config.yaml").write_text(json.dumps(CONFIG))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert run / "trace" / "000001.parquet" in before
    for name in ("simulate", "run"):
        message = refused(capsys, name, "config.yaml", "checkpoint.every_s=1", "--out", "run")
        assert message.endswith(
            "run exists and is not an empty folder; choose another --out; to resume the run "
            "that is there: --resume run\n"
        )
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "sync",
    [
        {"kind": "ssgd"},
        {"kind": "local-sgd", "every": 3, "after": 2},
        {"kind": "diloco", "every": 3},
    ],
)
def test_a_run_without_servers_that_goes_on_is_bitwise_the_one_without_interruption(tmp_path, sync):
    changes = {"sync": sync, "servers": 1, "optimizer": {"kind": "adam", "lr": 0.01}}
    expected = outpace.simulate({**CONFIG, **changes})
    out = interrupted(tmp_path / "run", every_updates=3, **changes)
    result = outpace.simulate(resume=out)
    summary = result.summary
    for key in ("parameters_digest", "iterations", "gradients_applied", "updates"):
        assert summary.get(key) == expected.summary.get(key)
    assert summary["status"] == "complete"
    assert int(summary["resumed_from"][-6:]) > 1  # the first one was made at the start
    assert result.metrics["updates"].to_pylist() == expected.metrics["updates"].to_pylist()
    numbers = [row["version"] for row in result.trace.to_pylist() if row["event"] == "all-reduce"]
    assert sorted(set(numbers)) == list(range(max(numbers, default=-1) + 1))


@pytest.mark.parametrize(("kind", "workers"), [("gossip", 2), ("psgd", 5)])
def test_another_number_of_workers_goes_on_with_the_mean_of_all_models(tmp_path, kind, workers):
    run = interrupted(tmp_path / "run", sync={"kind": kind}, servers=1)
    before = outpace.load_checkpoint(run)
    newest = sorted(run.glob("checkpoints/*/index.json"))[-1]
    at_s = json.loads(newest.read_text())["index"]["now"] / 1e9
    stop = {"iterations": 24, "virtual_time_s": at_s + 0.02}  # before any gradient is computed
    result = outpace.simulate(resume=run, workers=workers, stop=stop)
    assert (result.summary["status"], result.summary["updates_lost"]) == ("complete", 0)
    assert result.parameters["w"].allclose(before["w"], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "sync",
    [
        {"kind": "hpsgd"},
        {"kind": "hpsgd", "commit": "delayed"},
        {"kind": "hpsgd", "commit": "delayed", "start_together": True, "window": 2},
        {"kind": "diloco", "every": 3, "overlap": True, "outer_lr": 1.0, "outer_momentum": 0.0},
    ],
)
def test_gradients_beside_the_common_model_are_in_the_checkpoint(tmp_path, sync):
    """Gradients are noise of worker and iteration alone, so their sum does not depend on timing."""
    task = {"kind": "quadratic", "eigenvalues": [0.0] * 6, "noise": 1.0}
    optimizer = {"kind": "sgd", "lr": 0.05}
    # As long as two steps.
    network = {"latency_s": 0.05, "bandwidth_bytes_per_s": 1e6}
    changes = {
        "sync": sync,
        "servers": 1,
        "task": task,
        "optimizer": optimizer,
        "network": network,
    }
    expected = outpace.simulate({**CONFIG, **changes})
    out = interrupted(tmp_path / "run", at_s=2.0, every_updates=2, **changes)
    result = outpace.simulate(resume=out)
    assert int(result.summary["resumed_from"][-6:]) > 1
    for key in ("iterations", "gradients_applied", "updates_lost"):
        assert result.summary[key] == expected.summary[key]
    for name, found in result.parameters.items():
        assert found.allclose(expected.parameters[name], rtol=0, atol=1e-6)


def test_a_strategy_that_does_not_say_when_it_can_be_saved_is_refused(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from outpace.sync import PeerStrategy\n"
        "class Mine(PeerStrategy):\n"
        "    async def train(self, me):\n"
        "        pass\n"
    )
    sync = {"kind": "python", "target": f"{tmp_path}/mine.py:Mine"}
    with pytest.raises(outpace.ConfigError, match=r"checkpoint: the state that the workers of"):
        outpace.simulate({**CONFIG, "servers": 1, "sync": sync, "checkpoint": {"every_s": 1}})


def test_the_costs_of_failures_before_the_checkpoint_are_counted(tmp_path):
    crashes = [{"at_s": 12.5, "worker": 1}, {"at_s": 32.5, "worker": 0}, {"at_s": 16, "server": 1}]
    config = {
        "task": {"kind": "timing", "parameters": 8},
        "compute": {"kind": "constant", "mean_s": 1.0},
        "network": None,
        "stop": {"iterations": 40},
        "faults": {"schedule": crashes, "recovery": {"detected_s": 1.0}},
    }
    whole = outpace.simulate({**CONFIG, **config, "checkpoint": {"every_updates": 10}})
    out = interrupted(tmp_path / "run", at_s=40.0, every_updates=10, **config)
    found = outpace.simulate(resume=out)
    assert found.summary["resumed_from"] == "checkpoints/000003"  # after 20 iterations
    costs, expected = dict(found.summary["faults"]), dict(whole.summary["faults"])
    assert costs.pop("lost_s") == pytest.approx(expected.pop("lost_s"))
    assert costs == expected
    assert (costs["worker_losses"], costs["server_losses"]) == (2, 1)
    assert found.summary["restarts"] == whole.summary["restarts"] == 3
