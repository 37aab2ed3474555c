"""The pool of runs in virtual time: the same results, early ends, failures, folders."""

from __future__ import annotations

import json
import multiprocessing
from itertools import pairwise

import pytest
import torch

import outpace
from outpace.config.reading import experiment_from
from outpace.experiment.sources import as_experiment
from outpace.experiment.trials import Ended, Order, Point, Pool
from outpace.experiment.trials import pool as pool_module

BASE = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0]},
    "workers": 2,
    "compute": {"kind": "exponential", "mean_s": 1.0},
    "sync": {"kind": "asp"},
    "optimizer": {"lr": 0.5},
    "evaluate": {"every_updates": 1},
    "stop": {"iterations": 5},
}
ENDLESS = {"stop": {"iterations": 300_000}, "optimizer": {"lr": 1e-6}}


def experiment(**changes):
    return experiment_from({**BASE, **changes}, "the test")


def to_the_end(pool):
    found = []
    while events := pool.wait():
        found += events
    return found


def test_a_run_of_the_pool_is_the_run_of_simulate():
    with Pool(2) as pool:
        for seed in range(3):
            pool.start(Order(seed, experiment(seed=seed)))
        with pytest.raises(ValueError, match="the key 0 has not ended"):
            pool.start(Order(0, experiment()))
        events = to_the_end(pool)
    ends = {event.key: event for event in events if isinstance(event, Ended)}
    assert sorted(ends) == [0, 1, 2]
    for seed, end in ends.items():
        result = outpace.simulate(experiment(seed=seed))
        expected = [
            Point(seed, *(row[name] for name in Point.__slots__ if name != "key"))
            for row in result.metrics.to_pylist()
        ]
        assert list(end.points) == expected
        assert [e for e in events if isinstance(e, Point) and e.key == seed] == expected
        assert (end.status, end.error, end.summary["status"]) == ("complete", None, "complete")
        for digest in ("parameters_digest", "trace_digest"):
            assert end.summary[digest] == result.summary[digest]


def test_a_run_is_stopped_and_its_process_carries_out_the_next(tmp_path):
    with Pool(1) as pool:
        pool.start(Order("long", experiment(**ENDLESS), tmp_path / "long"))
        pool.start(Order("queued", experiment()))
        pool.start(Order("diverges", experiment(optimizer={"lr": 1e9}, stop={"iterations": 200})))
        pool.start(Order("last", experiment()))
        (first, *_) = pool.wait()
        assert (first.key, first.time_s) == ("long", 0.0)
        pool.stop("queued", "not needed")
        pool.stop("long", "it cannot win")
        ends = {event.key: event for event in to_the_end(pool) if isinstance(event, Ended)}
    assert {key: end.status for key, end in ends.items()} == {
        "queued": "stopped",
        "long": "stopped",
        "diverges": "failed",
        "last": "complete",
    }
    assert (ends["queued"].error, ends["long"].error) == ("not needed", "it cannot win")
    assert "finite" in ends["diverges"].error
    assert ends["diverges"].points, "those before the error"
    summary = json.loads((tmp_path / "long" / "summary.json").read_text())
    assert (summary["status"], summary["error"]) == ("partial", "it cannot win")
    assert summary == ends["long"].summary
    assert (tmp_path / "long" / "report.html").is_file()


def test_leaving_the_block_completes_the_folders_of_interrupted_runs(tmp_path):
    with Pool(2) as pool:
        pool.start(Order(0, experiment(**ENDLESS), tmp_path / "0"))
        pool.start(Order(1, experiment(**ENDLESS), tmp_path / "1"))
        begun = set()
        while len(begun) < 2:
            begun |= {event.key for event in pool.wait()}
    assert multiprocessing.active_children() == []
    for name in ("0", "1"):
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert (summary["status"], summary["error"]) == ("partial", "interrupted")
        assert (tmp_path / name / "metrics.parquet").is_file()


@pytest.mark.parametrize(("compute", "replaced"), [("exponential", 2), ("measured", 0)])
def test_a_process_is_replaced_after_so_many_runs_unless_it_has_measured_run_times(
    monkeypatch, compute, replaced
):
    monkeypatch.setattr(pool_module, "RUNS_EACH", 2)
    times = {"kind": compute, **({"mean_s": 1.0} if compute == "exponential" else {})}
    processes = []
    with Pool(1) as pool:
        for run in range(5):
            pool.start(Order(run, experiment(compute=times)))
            assert to_the_end(pool)[-1].status == "complete"
            (process,) = multiprocessing.active_children()
            processes.append(process.pid)
    assert sum(one != other for one, other in pairwise(processes)) == replaced
    assert multiprocessing.active_children() == []


def test_a_task_given_from_python_is_simulated_in_this_process():
    def make_task():
        x = torch.ones(4, 1)
        loss = torch.nn.functional.mse_loss
        return outpace.Task(model=torch.nn.Linear(1, 1), loss=loss, train=(x, x), test=(x, x))

    given = as_experiment(BASE, make_task, {"batch_size": 2})
    with Pool(2) as pool:
        pool.start(Order("given", given))
        *points, end = to_the_end(pool)
    result = outpace.simulate(given)
    assert (end.status, list(end.points)) == ("complete", points)
    assert [point.train_loss for point in points] == result.metrics["train_loss"].to_pylist()
