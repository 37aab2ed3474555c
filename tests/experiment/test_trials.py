"""The pool of runs in virtual time: the same results, early ends, failures, folders."""

from __future__ import annotations

import json
import multiprocessing
from itertools import pairwise

import pytest

from outpace.config.reading import experiment_from
from outpace.experiment.trials import Ended, Order, Pool
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
