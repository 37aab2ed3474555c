"""Runs on the nodes of a cluster: losses, nodes that come, room, files; without Ray."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.nodes import NodesHere

import outpace
from outpace.config.launchers import Ray
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.trials import Ended, Order, Point, Pool
from outpace.experiment.trials.arriving import Arriving, Piece
from outpace.experiment.trials.elsewhere import RunsElsewhere
from outpace.experiment.trials.pool import Lost
from outpace.experiment.trials.where import OnRay, on_of
from outpace.experiment.trials.where import carrier_of as carrier_on

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


@contextmanager
def pool_on(say=pytest.fail, **cpus: float) -> Iterator[tuple[NodesHere, Pool]]:
    """A pool on nodes with these CPUs. say: called with what is said about them."""
    with NodesHere(**cpus) as nodes, Pool(elsewhere=RunsElsewhere(nodes, say=say)) as pool:
        yield nodes, pool


def points_of(events, key):
    return [event.updates for event in events if isinstance(event, Point) and event.key == key]


def until(pool, condition):
    """Return the events of the pool until the condition holds; fail if none comes for a minute."""
    found = []
    while not condition(found):
        events = pool.wait(60)
        assert events, "nothing has happened for a minute"
        found += events
    return found


def ended(events, key="run"):
    return [event for event in events if isinstance(event, Ended) and event.key == key]


def test_a_run_that_loses_its_node_begins_again_and_each_point_comes_once():
    said = []
    with pool_on(said.append, one=1, two=0) as (nodes, pool):
        pool.start(Order("run", experiment(**ENDLESS)))
        events = until(pool, lambda found: len(points_of(found, "run")) >= 5)
        nodes.lose("one")
        nodes.add("three", 1)
        # A run that begins again sends the points from before first, and then others.
        while not said:
            events += pool.wait(0.05)
        before = len(points_of(events, "run"))
        events += until(pool, lambda found: len(points_of(found, "run")) >= 5)
        pool.stop("run", "enough")
        events += until(pool, ended)
    assert points_of(events, "run") == list(range(len(points_of(events, "run"))))
    assert before >= 5
    (end,) = ended(events)
    assert (end.status, end.error) == ("stopped", "enough")
    assert [point.updates for point in end.points] == points_of(events, "run")
    assert said == ["a run on node one was lost, and begins again: its node has died"]


class Losing:
    """A carrier that loses each run as soon as it has begun, after a point."""

    def __init__(self):
        self.begun = []
        self._readable, self._other = os.pipe()
        os.write(self._other, b"x")

    @property
    def waited_for(self):
        return [self._readable]

    look_s = 1.0

    def has_room(self):
        return True

    def begin(self, run, order, all_cores):
        self.begun.append(run)

    def take(self, ready):
        if self._readable in ready:
            yield self.begun[-1], f"warning {len(self.begun)}"
            yield self.begun[-1], Lost("was lost with node one")

    def close(self):
        os.close(self._readable)
        os.close(self._other)


def test_a_run_that_is_lost_four_times_has_failed():
    losing, warnings = Losing(), []
    with Pool(elsewhere=losing, warning=lambda _, text: warnings.append(text)) as pool:
        pool.start(Order("run", experiment()))
        (end,) = until(pool, ended)
    assert len(losing.begun) == 4
    assert (end.status, end.error) == (
        "failed",
        "the process of the run was lost with node one, and 3 times before",
    )
    assert warnings == ["warning 1"]  # the others would be the same


def test_a_node_that_joins_takes_waiting_runs():
    with NodesHere(one=1) as nodes:
        carrier = RunsElsewhere(nodes, say=pytest.fail)
        with Pool(elsewhere=carrier) as pool:
            pool.start(Order("first", experiment(**ENDLESS)))
            pool.start(Order("second", experiment(**ENDLESS)))
            until(pool, lambda found: points_of(found, "first"))
            nodes.add("two", 1)
            until(pool, lambda found: points_of(found, "second"))


def test_a_run_that_needs_all_cores_begins_between_runs_that_need_one(monkeypatch):
    from outpace.experiment.trials import pool

    monkeypatch.setattr(pool, "needs_all_cores", lambda each: each.seed == 1)
    with pool_on(one=2) as (_, pool):
        for run in range(3):
            pool.start(Order(run, experiment(seed=run)))
        events = until(pool, lambda found: all(ended(found, run) for run in range(3)))
    ends = [event for event in events if isinstance(event, Ended)]
    assert [(end.key, end.status) for end in ends] == [(run, "complete") for run in range(3)]


def test_a_file_that_a_node_lacks_fails_the_run_and_both_are_named(monkeypatch):
    from outpace.experiment.trials import elsewhere

    monkeypatch.setattr(elsewhere, "files_of", lambda _: ["/not/there.csv"])
    with pool_on(one=1) as (_, pool):
        pool.start(Order("run", experiment()))
        (end,) = until(pool, ended)
    assert (end.status, end.error) == ("failed", "node one does not have /not/there.csv")


def test_what_runs_print_is_printed_here(tmp_path, capsys):
    path = tmp_path / "task.py"
    path.write_text(
        "import torch, outpace\n"
        "def make():\n"
        "    print('made')\n"
        "    x = torch.ones(4, 1)\n"
        "    loss = torch.nn.functional.mse_loss\n"
        "    model = torch.nn.Linear(1, 1)\n"
        "    return outpace.Task(model=model, loss=loss, train=(x, x), test=(x, x))\n"
    )
    task = {"kind": "python", "target": f"{path}:make"}
    with pool_on(one=1) as (_, pool):
        pool.start(Order("run", experiment(task=task, batch_size=2)))
        (end,) = ended(until(pool, ended))
    assert end.status == "complete"
    assert set(capsys.readouterr().out.splitlines()) == {"made"}


@pytest.fixture
def cluster() -> Iterator[NodesHere]:
    with NodesHere(one=1, two=1) as nodes:
        yield nodes


def carrier_of(nodes, said=None, **settings):
    say = [].append if said is None else said.append
    return carrier_on(OnRay(**settings), nodes, [experiment()], have_folders=True, say=say)


def test_nodes_that_cannot_take_part_are_named_before_anything_is_run(cluster):
    cluster.nodes["two"].problem = "has Outpace 0.0.1, and this machine 0.1.0: install the same"
    with pytest.raises(ConfigError, match="on: node two has Outpace"):
        carrier_of(cluster)


def test_a_node_that_comes_later_and_cannot_take_part_is_not_used(cluster):
    said = []
    carrier = carrier_of(cluster, said)
    cluster.nodes["two"].problem = "has torch 1.0, and this machine 2.0: install the same"
    with Pool(elsewhere=carrier) as pool:
        for run in range(3):
            pool.start(Order(run, experiment()))
        ends = until(pool, lambda found: all(ended(found, run) for run in range(3)))
    assert {end.status for end in ends if isinstance(end, Ended)} == {"complete"}
    assert said == [
        "node two has torch 1.0, and this machine 2.0: install the same; no run begins there"
    ]


def endless(_):
    while True:
        time.sleep(1)
        yield []


def test_room_that_is_lacking_is_named_and_not_waited_for_without_end(cluster):
    said = []
    with pytest.raises(ConfigError) as error:
        carrier_of(cluster, said, cpus=2, wait_s=0.01)
    assert str(error.value) == (
        "on: a run needs 2 CPU, and no node of the cluster has more than 1; waited 0.01 s for it: "
        "ask for fewer CPUs with --cpus (cpus), or wait longer (wait_s)"
    )
    for _ in range(2):
        cluster.begin(1, (), endless)
    with pytest.raises(
        ConfigError, match="a run needs 1 CPU of one node, and 0 of the cluster's 2"
    ):
        carrier_of(cluster, said, wait_s=0.01)


def test_runs_whose_task_or_times_are_of_this_machine_stay_here(cluster):
    said = []
    measured = experiment(compute={"kind": "measured"})
    found = carrier_on(OnRay(), cluster, [measured], have_folders=True, say=said.append)
    assert found is None
    assert said[0].startswith("runs of 1 configuration stay on this machine: ")
    with Pool(elsewhere=carrier_of(cluster)) as pool:
        pool.start(Order("run", measured))
        (end,) = ended(until(pool, ended))
        assert end.status == "complete"
        assert not any(node.tasks for node in cluster.nodes.values())


def test_trackers_that_write_to_a_disk_are_refused(cluster):
    for tracker, have_folders in (
        ({"kind": "tensorboard"}, False),
        ({"kind": "tensorboard", "folder": "/logs"}, True),
        ({"kind": "mlflow"}, True),
        ({"kind": "wandb", "mode": "offline"}, True),
    ):
        with pytest.raises(ConfigError, match=rf"trackers\[0\]: {tracker['kind']} would write"):
            carrier_on(
                OnRay(), cluster, [experiment(trackers=[tracker])], have_folders=have_folders
            )


def test_the_folder_of_a_run_comes_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "run"
    coming = Arriving(folder)
    for piece in (Piece("files", None), Piece("files/a", b"abc"), Piece("files/a", b"def")):
        coming.add(piece)
    assert not folder.exists()
    coming.abandon()
    assert list(tmp_path.iterdir()) == []
    again = Arriving(folder)
    again.add(Piece("a", b"abc"))
    again.complete(Ended("run", "complete", None, {}))
    assert (folder / "a").read_bytes() == b"abc"
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("name", ["../other", "files/../../other", "{}/other"])
@pytest.mark.parametrize("data", [None, b"abc"])
def test_a_file_that_a_node_names_outside_the_folder_of_the_run_is_not_written(
    tmp_path, name, data
):
    coming = Arriving(tmp_path / "run")
    coming.add(Piece("b", b"abc"))
    with pytest.raises(OSError, match="the node names a file outside its folder"):
        coming.add(Piece(name.format(tmp_path), data))
    coming.abandon()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_arrive_fails_its_run(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "other").touch()
    with pool_on(one=1) as (_, pool):
        pool.start(Order("run", experiment(), tmp_path / "run"))
        (end,) = ended(until(pool, ended))
    assert end.status == "failed"
    assert end.error.startswith("the files of the run cannot be brought from node one: ")


def test_a_run_with_checkpoints_says_how_it_goes_on_here(tmp_path):
    folder = tmp_path / "run"
    summary = {"resume": "outpace simulate --resume /there", "virtual_time_s": 1.0}
    end = Ended("run", "stopped", "interrupted", summary)
    coming = Arriving(folder)
    coming.add(Piece("a", b"abc"))
    coming.complete(end)
    assert (folder / "a").read_bytes() == b"abc"
    assert end.summary["resume"] == f"outpace simulate --resume {folder}"
    assert f"--resume {folder}" in (folder / "summary.json").read_text()


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


def test_a_sweep_finds_on_a_cluster_what_it_finds_here(monkeypatch):
    from outpace.real.process.ray import tasks

    asked = []

    def made(*settings):
        asked.append(settings[:2])
        return NodesHere(one=1, two=1)

    monkeypatch.setattr(tasks, "RayTasks", made)
    over = {"optimizer.lr": [1e-6, 1e-4, 1e-2]}
    config = {**BASE, "stop": {"iterations": 5}}
    there = outpace.sweep(config, over, seeds=2, on={"kind": "ray", "address": "10.0.0.5:6379"})
    here = outpace.sweep(config, over, seeds=2)
    assert asked == [("10.0.0.5:6379", "on.address")]
    assert [each.values for each in there.candidates] == [each.values for each in here.candidates]
    assert [each.value for each in there.candidates] == [each.value for each in here.candidates]
    assert {each.status for each in there.candidates} == {"complete"}
