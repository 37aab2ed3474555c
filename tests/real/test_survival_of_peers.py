"""Real runs without servers that are saved: they go on from their last checkpoint."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.saved_runs import give_up, numbers, once, once_saved

from outpace import Result, RunError, load_checkpoint, run, simulate
from outpace.record.checkpoints import Checkpoints
from outpace.record.event_log import LOG

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
RUN: dict[str, Any] = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5, 1.0, 2.0], "noise": 0.1},
    "workers": 3,
    "deterministic": True,
    "optimizer": {"kind": "sgd", "lr": 0.05, "momentum": 0.9},
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.01},
    "stop": {"iterations": 120},
    "evaluate": {"every_updates": 40},
}
SAVED = {"checkpoint": {"every_s": 0.1}}
STRATEGIES = {
    "ssgd": {"kind": "ssgd"},
    "local-sgd": {"kind": "local-sgd", "every": 7, "after": 3},
    "diloco": {"kind": "diloco", "every": 5},
    "psgd": {"kind": "psgd"},
}
# Gradients are noise of worker and iteration alone, so their sum does not depend on timing.
NOISE = {
    "task": {"kind": "quadratic", "eigenvalues": [0.0] * 6, "noise": 1.0},
    "optimizer": {"kind": "sgd", "lr": 0.05},
}


def interrupted_and_resumed(folder: Path, config: dict[str, Any], **changes: Any) -> Result:
    """Return the result of a run that failed after its third checkpoint and went on."""
    with pytest.raises(RunError, match="that is enough"):
        run({**config, **SAVED}, folder, control=once_saved(folder, give_up, 3))
    return run(resume=folder, **changes)


@pytest.mark.parametrize(
    "kind",
    [
        "ssgd",
        "diloco",
        pytest.param("local-sgd", marks=pytest.mark.slow),
        pytest.param("psgd", marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_ends_with_the_parameters_of_the_uninterrupted_one(kind, tmp_path):
    config = {**RUN, "sync": STRATEGIES[kind]}
    expected = simulate(config)
    result = interrupted_and_resumed(tmp_path / "run", config)
    summary = result.summary
    assert int(summary["resumed_from"][-6:]) >= 3
    for key in ("parameters_digest", "iterations", "gradients_applied", "status", "updates_lost"):
        assert summary[key] == expected.summary[key]
    if kind != "psgd":
        updates = result.metrics["updates"].to_pylist()
        assert updates == expected.metrics["updates"].to_pylist()
    times = result.metrics["time_s"].to_pylist()
    assert times == sorted(times)
    rows = result.trace.to_pylist()
    ended = [(row["worker"], row["iteration"]) for row in rows if row["event"] == "iteration"]
    assert len(ended) == len(set(ended)) >= 3 * 119  # that of the checkpoint has no row
    averages = {row["version"] for row in rows if row["event"] == "all-reduce"}
    assert averages == set(range(len(averages)))
    assert load_checkpoint(tmp_path / "run")  # plain tensors


@pytest.mark.parametrize(
    "sync",
    [
        {"kind": "hpsgd"},
        {"kind": "gossip"},
        pytest.param({"kind": "hpsgd", "start_together": True}, marks=pytest.mark.slow),
        pytest.param(
            {"kind": "diloco", "every": 5, "overlap": True, "outer_lr": 1.0, "outer_momentum": 0.0},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_no_gradient_is_lost_or_counts_twice_where_the_result_depends_on_timing(sync, tmp_path):
    config = {**RUN, **NOISE, "sync": sync}
    expected = simulate(config)
    result = interrupted_and_resumed(tmp_path / "run", config)
    assert int(result.summary["resumed_from"][-6:]) >= 3
    for key in ("iterations", "gradients_applied", "updates_lost"):
        assert result.summary[key] == expected.summary[key]
    for name, found in result.parameters.items():
        assert found.allclose(expected.parameters[name], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_worker_that_has_finished_is_saved_with_its_model(tmp_path):
    folder = tmp_path / "run"
    slow = {"kind": "constant", "mean_s": 0.005, "slow": [{"workers": [1], "factor": 10.0}]}
    config = {**RUN, "sync": {"kind": "psgd"}, "compute": slow, "stop": {"iterations": 40}}

    def has_finished() -> bool:
        newest = Checkpoints(folder).newest()
        return newest is not None and newest.index.shards[0].watermarks[0] == 39

    with pytest.raises(RunError, match="that is enough"):
        run({**config, **SAVED}, folder, control=once(has_finished, give_up))
    summary = run(resume=folder).summary
    assert summary["iterations"] == [40] * 3
    assert summary["parameters_digest"] == simulate(config).summary["parameters_digest"]


def test_a_run_goes_on_with_another_number_of_workers(tmp_path):
    config = {**RUN, "sync": STRATEGIES["local-sgd"]}
    summary = interrupted_and_resumed(tmp_path / "run", config, workers=4).summary
    assert summary["status"] == "complete"
    assert len(summary["iterations"]) == 4
    assert summary["iterations"][3] < 120
    assert numbers(tmp_path / "run")


def killed(folder: Path, config: dict[str, Any], *names: str) -> tuple[Result, list[str]]:
    """Return the result of a run whose workers of these names are killed, and what it said."""
    runs: list[Any] = []
    said: list[str] = []

    def kill() -> None:
        for name in names:
            os.kill(runs[0].launcher.pids[name], signal.SIGKILL)

    control = once_saved(folder, kill)
    result = run({**config, **SAVED}, folder, watch=runs.append, log=said.append, control=control)
    assert not runs[0].launcher.pids
    return result, said


@linux
@pytest.mark.parametrize("kind", ["ssgd", pytest.param("diloco", marks=pytest.mark.slow)])
def test_after_the_death_of_a_worker_all_begin_again_and_nothing_is_applied_twice(kind, tmp_path):
    config = {**RUN, "sync": STRATEGIES[kind]}
    result, said = killed(tmp_path / "run", config, "worker-1")
    summary, expected = result.summary, simulate(config).summary
    assert summary["parameters_digest"] == expected["parameters_digest"]
    assert (summary["status"], summary["restarts"], summary["updates_lost"]) == ("complete", 1, 0)
    assert summary["iterations"] == [120] * 3
    assert summary["gradients_applied"] == 360
    (line,) = said
    words = "worker-1 was killed by SIGKILL before it was done; the run goes on from checkpoints/"
    assert line.startswith(words)
    (lost,) = (row for row in result.trace.to_pylist() if row["event"] == "restart")
    assert (lost["worker"], lost["shard"]) == (1, None)
    assert lost["version"] >= 2  # the checkpoint
    assert lost["start_ns"] < lost["end_ns"]


@linux
@pytest.mark.parametrize("kind", ["gossip", pytest.param("hpsgd", marks=pytest.mark.slow)])
def test_after_the_death_of_workers_no_gradient_is_lost_or_counts_twice(kind, tmp_path):
    config = {**RUN, **NOISE, "sync": {"kind": kind}}
    result, said = killed(tmp_path / "run", config, "worker-0", "worker-2")
    expected = simulate(config)
    alone = sum("while the others go on" in line for line in said)
    # Under gossip they come back alone unless one of them had the only copy of the other's model.
    assert alone in ((2,) if kind == "hpsgd" else (0, 2))
    # All begin again, too, if worker-1 ends before the two are back.
    assert result.summary["restarts"] == len(said)
    for key in ("iterations", "gradients_applied", "updates_lost"):
        assert result.summary[key] == expected.summary[key]
    for name, found in result.parameters.items():
        assert found.allclose(expected.parameters[name], rtol=0, atol=1e-5)


# The entry of a sample is its gradient. worker-1 is killed or stopped `deaths` times; the others
# are slow from their iteration 20 on until it computes again, so that they do not end before that.
LEDGER = """\
import multiprocessing, os, pathlib, signal, time
import torch
import outpace

class Ledger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.entries = torch.nn.Parameter(torch.zeros(300))

    def forward(self, numbers):
        return self.entries[numbers]

def make_task():
    folder, calls = pathlib.Path({folder!r}), 0

    def loss(output, target):
        nonlocal calls
        calls += output.requires_grad
        deaths = len(list(folder.glob("died-*")))
        if multiprocessing.current_process().name != "worker-1":
            if calls > 20 and not (folder / "back").exists():
                time.sleep(0.3)
        elif deaths < {deaths} and calls == 20 - deaths:
            (folder / f"died-{{deaths}}").touch()
            os.kill(os.getpid(), signal.{signal})
        elif deaths == {deaths}:
            (folder / "back").touch()
        return output.sum()

    data = torch.arange(300), torch.zeros(300)
    return outpace.Task(Ledger(), loss, data, data)
"""


def ledger(folder: Path, kind: str, **what: Any) -> dict[str, Any]:
    """Return the configuration of a run with this task; what: fills it in."""
    task = folder / "task.py"
    task.write_text(LEDGER.format(folder=str(folder), **what))
    return {
        **RUN,
        "task": {"kind": "python", "target": f"{task}:make_task"},
        "batch_size": 1,
        "sync": {"kind": kind},
        "optimizer": {"kind": "sgd", "lr": 3.0},
        "stop": {"iterations": 100},
    }


@linux
@pytest.mark.parametrize("kind", ["hpsgd", "gossip"])
def test_a_worker_that_is_killed_comes_back_alone_and_no_gradient_is_lost_or_counts_twice(
    kind, tmp_path
):
    said: list[str] = []
    config = ledger(tmp_path, kind, deaths=2, signal="SIGKILL")
    result = run(config, tmp_path / "run", log=said.append)
    words = "worker-1 was killed by SIGKILL before it was done; it is restarted (generation {}) "
    assert said == [f"{words.format(n)}while the others go on" for n in (1, 2)]
    summary, (entries,) = result.summary, result.parameters.values()
    assert entries.tolist() == pytest.approx([-1.0] * 300)  # each gradient is there, and once
    assert (summary["status"], summary["restarts"], summary["updates_lost"]) == ("complete", 2, 0)
    assert (summary["iterations"], summary["gradients_applied"]) == ([100] * 3, 300)
    rows = result.trace.to_pylist()
    restarts = [row for row in rows if row["event"] == "restart"]
    assert [(row["worker"], row["version"]) for row in restarts] == [(1, None)] * 2
    first, second = (row["iteration"] for row in restarts)
    assert first <= second <= 40  # what its averages have: at most what it had computed
    for worker in (0, 2):  # nothing is done again
        ended = [
            row["iteration"]
            for row in rows
            if row["event"] == "iteration" and row["worker"] == worker
        ]
        assert ended == list(range(100))
    logged = [json.loads(line) for line in (tmp_path / "run" / LOG).read_text().splitlines()]
    back = [each["fields"]["first"] for each in logged if each["event"] == "rejoined"]
    assert back == [first, second]


@pytest.mark.slow
@linux
@pytest.mark.parametrize("kind", ["hpsgd", "gossip"])
def test_a_worker_that_stands_still_for_the_lease_comes_back_alone(kind, tmp_path):
    said: list[str] = []
    config = ledger(tmp_path, kind, deaths=1, signal="SIGSTOP")
    result = run(config, tmp_path / "run", log=said.append, lease_s=2.0)
    assert said == [
        "worker-1 is lost: its connection closed, or was silent for 2 s; it is restarted "
        "(generation 1) while the others go on"
    ]
    (entries,) = result.parameters.values()
    assert entries.tolist() == pytest.approx([-1.0] * 300)  # each gradient is there, and once
    assert result.summary["restarts"] == 1


@linux
def test_the_others_go_on_without_a_worker_if_that_is_wanted_and_are_still_saved(tmp_path):
    folder = tmp_path / "run"
    config = {**RUN, "sync": {"kind": "ssgd"}, "on_worker_loss": "continue"}
    result, said = killed(folder, config, "worker-1")
    (line,) = said
    assert line.endswith("SIGKILL before it was done; the others go on without it")
    assert result.summary["restarts"] == 0
    assert result.summary["iterations"][1] < 120
    (lost_at,) = (row["end_ns"] for row in result.trace.to_pylist() if row["event"] == "loss")
    newest = Checkpoints(folder).newest()
    assert newest is not None
    assert newest.index.now > lost_at
    assert newest.index.shards[0].watermarks == (newest.index.shards[0].clock - 1,) * 3
