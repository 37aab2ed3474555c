"""Runs on a Ray cluster: early ends, folders, missing things on nodes, and runs in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from tests.support.cluster import nodes, until

import outpace
from outpace.config.launchers import Ray
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError, OutpaceWarning, RunError
from outpace.experiment.trials import Ended, Order, Point, Pool
from outpace.experiment.trials.where import OnRay, on_of, pool_on

BASE = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0]},
    "workers": 2,
    "compute": {"kind": "exponential", "mean_s": 1.0},
    "sync": {"kind": "asp"},
    "optimizer": {"lr": 1e-6},
    "evaluate": {"every_updates": 1},
    "stop": {"iterations": 3},
}
ENDLESS = {"stop": {"iterations": 300_000}}


def experiment(**changes):
    return experiment_from({**BASE, **changes}, "the test")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with nodes("one", cpus=2) as cluster:
        yield cluster


@contextmanager
def pool_there(cluster, **on: Any) -> Iterator[Pool]:
    settings = {"kind": "ray", "address": cluster.address, "wait_s": 120, **on}
    with pool_on(on_of(settings), [experiment()]) as pool:
        yield pool


def to_the_end(pool):
    found = []
    while events := pool.wait():
        found += events
    return found


def ends_of(events):
    return {event.key: event for event in events if isinstance(event, Ended)}


@pytest.mark.slow
def test_a_run_on_a_cluster_is_stopped_and_its_folder_comes(cluster, tmp_path, monkeypatch):
    with pool_there(cluster) as pool:
        pool.start(Order("whole", experiment(), tmp_path / "whole"))
        pool.start(Order("long", experiment(**ENDLESS), tmp_path / "long"))
        pool.start(Order("diverges", experiment(optimizer={"lr": 1e9}, stop={"iterations": 200})))
        pool.start(Order("other", experiment(**ENDLESS)))
        events = []
        until(lambda: events.extend(pool.wait(1)) or any(e.key == "long" for e in events))
        pool.stop("long", "it cannot win")
        until(lambda: events.extend(pool.wait(1)) or any(e.key == "other" for e in events))
        pool.start(Order("late", experiment(**ENDLESS)))
        pool.start(Order("queued", experiment()))
        for key in ("late", "other", "queued"):
            pool.stop(key, "not needed")
        events += to_the_end(pool)
    ends = ends_of(events)
    expected = outpace.simulate(experiment())
    assert ends["whole"].summary["trace_digest"] == expected.summary["trace_digest"]
    rows = expected.metrics.to_pylist()
    points = [event for event in events if isinstance(event, Point) and event.key == "whole"]
    assert [point.train_loss for point in points] == [row["train_loss"] for row in rows]
    assert list(ends["whole"].points) == points
    assert (tmp_path / "whole" / "report.html").is_file()
    assert (ends["long"].status, ends["long"].error) == ("stopped", "it cannot win")
    summary = json.loads((tmp_path / "long" / "summary.json").read_text())
    assert (summary["status"], summary["error"]) == ("partial", "it cannot win")
    assert (ends["diverges"].status, "finite" in ends["diverges"].error) == ("failed", True)
    assert {ends[key].status for key in ("late", "other", "queued")} == {"stopped"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["long", "whole"]


@pytest.mark.slow
def test_what_a_node_or_the_cluster_lacks_is_named(cluster, tmp_path, monkeypatch):
    from outpace.experiment.trials import on_ray

    with pool_there(cluster, cpus=3, wait_s=0.1) as pool:
        pool.start(Order("run", experiment()))
        with pytest.raises(RunError, match=r"on: no node has begun a run within 0\.1 s"):
            to_the_end(pool)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pool_there(cluster) as pool:
        pool.start(Order("full", experiment(), tmp_path / "full"))
        (full,) = ends_of(to_the_end(pool)).values()
        monkeypatch.setattr(on_ray, "files_of", lambda _: ["/not/there.csv"])
        pool.start(Order("file", experiment()))
        (file,) = ends_of(to_the_end(pool)).values()
    assert full.error.startswith("the files of the run cannot be written: ")
    assert "node one does not have /not/there.csv" in file.error


@pytest.mark.slow
def test_a_sweep_finds_on_a_cluster_what_it_finds_here(cluster):
    over = {"optimizer.lr": [1e-6, 1e-4, 1e-2]}
    config = {**BASE, "stop": {"iterations": 5}}
    there = outpace.sweep(config, over, seeds=2, on={"kind": "ray", "address": cluster.address})
    here = outpace.sweep(config, over, seeds=2)
    assert there.candidates == here.candidates
    assert {each.status for each in there.candidates} == {"complete"}


def test_runs_whose_times_are_measured_stay_here():
    measured = experiment(compute={"kind": "measured"})
    with ExitStack() as stack:
        with pytest.warns(OutpaceWarning, match="the runs stay on this machine"):
            pool = stack.enter_context(pool_on(OnRay(), [experiment(), measured]))
        pool.start(Order("run", measured))
        assert ends_of(to_the_end(pool))["run"].status == "complete"


def test_where_runs_are_carried_out_is_read_from_words_and_mappings():
    assert on_of(None) is None
    assert on_of("local") is None
    assert on_of("ray") == OnRay()
    assert on_of({"address": "local"}) == OnRay(address="local")
    given = {"kind": "ray", "address": "10.0.0.5:6379", "cpus": 2}
    launcher = Ray(address="10.0.0.1:1", wait_s=5, runtime_env={"env_vars": {"A": "b"}})
    assert on_of(given, launcher) == OnRay("10.0.0.5:6379", 2, 5, {"env_vars": {"A": "b"}})
    assert on_of("ray", {"kind": "ray", "wait_s": 7}) == OnRay(wait_s=7)
    for wrong, words in (
        ("rya", "on.kind: unknown kind 'rya'. Did you mean 'ray'?"),
        ({"kind": "ray", "adress": "x"}, "Did you mean 'address'?"),
        ({"kind": "local", "address": "x"}, "on.address: unknown key"),
        ({"kind": "ray", "cpus": 0}, "on.cpus must be more than 0"),
        ({"kind": "ray", "wait_s": True}, "on.wait_s must be a number"),
        ({"kind": "ray", "address": 6379}, "on.address must be text"),
    ):
        with pytest.raises(ConfigError) as error:
            on_of(wrong)
        assert words in str(error.value)
