"""Cluster files: how `include` and `--cluster` use them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.support.command import outpace, refused

from outpace.config.cluster_files import with_cluster
from outpace.config.reading import experiment_from, to_plain
from outpace.errors import ConfigError, OutpaceWarning

RUN = {
    "task": {"kind": "timing", "parameters": 100},
    "workers": 2,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "stop": {"iterations": 3},
}
CLUSTER = """\
compute: {kind: normal, mean_s: 0.1, cv: 0.2, factors: [1.0, 2.0, 4.0]}
network:
  latency_s: 0.001
  nodes: {worker-2: {latency_s: 0.5}}
push_time: {kind: constant, mean_s: 0.01}
calibrated: {workers: 3, servers: 2, anything: else}
"""


@pytest.fixture
def here(tmp_path):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def read(here, **changes):
    return experiment_from({**RUN, "include": "cluster.yaml", **changes}, "run.yaml", here)


def test_own_keys_win_over_those_of_an_included_file(here):
    run = read(here, compute={"cv": 0.5}, network={"contention": "fair"}, push_time=None)
    assert (run.compute.kind, run.compute.mean_s, run.compute.cv) == ("normal", 0.1, 0.5)
    assert (run.network.latency_s, run.network.contention) == (0.001, "fair")
    assert run.push_time is None


def test_a_file_is_fitted_to_fewer_workers(here):
    run = read(here)
    assert run.compute.factors == (1.0, 2.0)
    assert run.network.nodes == {}  # there is no worker 2


def test_more_workers_are_drawn_from_those_of_the_file_and_keep_their_links(here):
    with pytest.warns(OutpaceWarning, match=r"describes 3 workers, and the run has 40"):
        run = read(here, workers=40)
    factors = run.compute.factors
    assert factors[:3] == (1.0, 2.0, 4.0)
    assert set(factors[3:]) == {1.0, 2.0, 4.0}
    slow = [f"worker-{n}" for n, factor in enumerate(factors) if factor == 4.0]
    assert list(run.network.nodes) == slow
    with pytest.warns(OutpaceWarning):
        assert read(here, workers=40, seed=1).compute.factors != factors


def test_the_cluster_is_drawn_within_the_errors_of_its_calibration(here):
    said = "compute: {errors: {mean_s: 0.01, factors: [0.1, 0.2, 0.3]}}"
    (here / "cluster.yaml").write_text(CLUSTER.replace("anything: else", said))
    assert read(here).compute.errors is None
    errors = read(here, draw_cluster=True).compute.errors
    assert (errors.mean_s, errors.cv, errors.factors) == (0.01, 0.0, (0.1, 0.2))
    with pytest.warns(OutpaceWarning, match="describes 3 workers"):
        law = read(here, draw_cluster=True, workers=9).compute
    assert [round(error * 10) for error in law.errors.factors] == [
        {1.0: 1, 2.0: 2, 4.0: 3}[factor] for factor in law.factors
    ]
    # The others are drawn again for each seed, from the three with their factors for this seed.
    exact = replace(law, errors=replace(law.errors, factors=()))
    drawn = [exact.drawn(seed).factors for seed in range(5)]
    assert all(each[:3] == (1.0, 2.0, 4.0) and set(each) == {1.0, 2.0, 4.0} for each in drawn)
    assert len(set(drawn)) == 5


def test_blocks_of_recorded_times_are_drawn_where_a_calibration_replays_them(here):
    text = "compute: {kind: trace, path: t.csv}\ncalibrated: {compute: {block: 7}}\n"
    (here / "cluster.yaml").write_text(text)
    assert read(here).compute.block is None
    assert read(here, draw_cluster=True).compute.block == 7


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "states its errors"),
        ({"compute": {"cv": 0.1}}, "leave compute out"),
        ({"include": None}, "name such a file by include or --cluster"),
        ({"draw_cluster": 1}, "draw_cluster must be true or false, not 1"),
    ],
)
def test_a_cluster_that_cannot_be_drawn_is_refused_in_a_line(here, changes, words):
    with pytest.raises(ConfigError, match=r"^run.yaml: [^\n]*$") as caught:
        read(here, **{"draw_cluster": True, **changes})
    assert words in str(caught.value)


def test_what_is_of_scripts_and_of_the_size_of_servers_is_left_out_where_it_does_not_apply(here):
    size = "{size_bytes: 100, message_s_per_byte: 0, update_s_per_byte: 1e-10}"
    more = "evaluation_time: {kind: constant, mean_s: 1}\nforward_share: 0.4\nservice_size: "
    more += size + "\n"
    (here / "cluster.yaml").write_text(more + CLUSTER)
    assert read(here).service_size.size_bytes == 100
    assert read(here).evaluation_time is None  # the task is no script
    assert read(here).forward_share == pytest.approx(1 / 3)
    assert read(here, pull_time={"kind": "constant", "mean_s": 1.0}).service_size is None


def test_a_strategy_without_servers_takes_what_is_of_workers_and_links(here):
    delays = "  delays: [{message: push, probability: 0.1, seconds: 1}]\n"
    (here / "cluster.yaml").write_text(CLUSTER.replace("push_time", delays + "push_time"))
    run = read(here, sync={"kind": "ssgd"}, servers=1)
    assert run.push_time is None
    assert run.network.delays == ()
    assert run.network.latency_s == 0.001


MACHINES = """\
network:
  machines: {a: [worker-0, worker-1, server-0], b: [server-1, worker-2], c: [scheduler]}
  nodes: {worker-2: {latency_s: 0.5}, server-1: {latency_s: 0.5}}
calibrated: {workers: 3, servers: 2}
"""


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"workers": 3},
            {"a": ("worker-0", "worker-1", "server-0"), "b": ("worker-2", "server-1")},
        ),
        (
            {"workers": 2, "servers": 1},
            {"a": ("worker-0", "worker-1", "server-0")},
        ),
        ({"workers": 2, "sync": {"kind": "ssgd"}, "servers": 1}, {"a": ("worker-0", "worker-1")}),
    ],
)
def test_machines_have_the_nodes_of_the_run(here, changes, expected):
    (here / "cluster.yaml").write_text(MACHINES)
    run = read(here, compute={"kind": "constant", "mean_s": 0.1}, **changes)
    assert run.network.machines == {**expected, "c": ("scheduler",)}


def test_more_workers_are_on_machines_like_those_of_the_file(here):
    (here / "cluster.yaml").write_text(MACHINES)
    with pytest.warns(OutpaceWarning, match="describes 3 workers"):
        run = read(here, compute={"kind": "constant", "mean_s": 0.1}, workers=30)
    slow = {name for name in run.network.nodes if name.startswith("worker")}
    for name, nodes in run.network.machines.items():
        workers = {node for node in nodes if node.startswith("worker")}
        if name.startswith("b"):
            assert len(workers) == 1
            assert workers <= slow
        else:
            assert len(workers) <= 2
            assert not workers & slow
    placed = [node for nodes in run.network.machines.values() for node in nodes]
    assert sorted(placed) == sorted(
        [*(f"worker-{n}" for n in range(30)), "server-0", "server-1", "scheduler"]
    )
    # As many machines like b as workers like worker 2, and no more like a than needed.
    kinds = [name[0] for name in run.network.machines]
    assert kinds.count("b") == len(slow)
    assert (30 - len(slow)) / 2 <= kinds.count("a") <= 30 - len(slow)


def test_servers_whose_machines_are_named_cannot_be_more(here):
    (here / "cluster.yaml").write_text(MACHINES.replace("server-1: {latency_s: 0.5}", ""))
    with pytest.raises(ConfigError, match="2 servers whose machines are named, and the run has 3"):
        read(here, compute={"kind": "constant", "mean_s": 0.1}, servers=3)


def test_servers_that_differ_cannot_be_more_than_the_file_describes(here):
    with pytest.warns(OutpaceWarning, match="2 servers that are alike, and the run has 3"):
        assert read(here, servers=3).servers == 3
    text = CLUSTER.replace("worker-2", "server-1")
    (here / "cluster.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"describes 2 servers whose links differ.* has 3"):
        read(here, servers=3)


def test_servers_whose_work_differs_keep_their_factors(here):
    law = "push_time: {kind: constant, mean_s: 0.001, factors: [0.5, 1.5]}"
    (here / "cluster.yaml").write_text(re.sub("push_time: .*", law, CLUSTER))
    assert read(here).push_time.factors == (0.5, 1.5)
    assert read(here, servers=1).push_time.factors == (0.5,)
    words = r"2 servers whose work takes different times \(push_time\), and the run has 3"
    with pytest.raises(ConfigError, match=words):
        read(here, servers=3)


def test_paths_in_a_file_are_relative_to_it(here):
    inner = here / "inner"
    inner.mkdir()
    (inner / "times.yaml").write_text("compute: {kind: trace, path: times.csv}\n")
    assert read(here, include="inner/times.yaml").compute.path == str(inner / "times.csv")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workers: 4", "cluster.yaml: workers: unknown key"),
        ("calibrated: {workers: 0}", "cluster.yaml: calibrated.workers must be at least 1"),
        ("compute: {kind: nromal}", "cluster.yaml: compute.kind: unknown kind 'nromal'"),
        ("compute: [", "cluster.yaml, line"),
    ],
)
def test_what_is_wrong_in_a_file_names_the_file(here, text, words):
    (here / "cluster.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as caught:
        read(here)
    assert words in str(caught.value)


def test_a_file_on_the_command_line_replaces_keys_as_a_whole(here):
    data = with_cluster({**RUN, "compute": {"cv": 9}, "pull_time": None}, here / "cluster.yaml")
    run = experiment_from(data, "run.yaml", here)
    assert (run.compute.cv, run.pull_time) == (0.2, None)
    again = experiment_from(to_plain(run), "config.yaml", here)
    assert again == run  # the configuration that a run records does not need the file


def test_commands_take_a_cluster_file(here, capsys, monkeypatch):
    monkeypatch.chdir(here)
    (here / "run.yaml").write_text(
        "task: {kind: timing, parameters: 100}\nworkers: 2\nstop: {iterations: 2}\n"
        "variants: [{name: b, sync: {kind: ssgd}, servers: 1}]\n"
    )
    options = ("--cluster", "cluster.yaml", "servers=2", "--quiet")
    assert outpace("compare", "run.yaml", *options, "--out", "out") == 0
    only = ("variants=[]", "sync.kind=bsp", "--out", "one")
    assert outpace("simulate", "run.yaml", *options, *only) == 0
    capsys.readouterr()
    gone = ("--cluster", "gone.yaml", "--out", "two")
    assert "there is no file" in refused(capsys, "simulate", "run.yaml", *gone)
    assert not (here / "two").exists()
