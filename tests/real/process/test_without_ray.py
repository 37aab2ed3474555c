"""The messages and actions of the launcher for Ray if no cluster is running."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import pytest
from tests.support.command import refused

from outpace.config.launchers import Ray
from outpace.real.ray.placing import groups_of, lacking, no_room

CONFIG = {
    "task": {"kind": "timing", "parameters": 10},
    "workers": 1,
    "sync": {"kind": "bsp"},
    "stop": {"iterations": 2},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    Path("config.yaml").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.mark.parametrize(("command", "option"), [("run", "--launcher"), ("compare", "--on")])
def test_without_ray_the_extra_is_named(folder, monkeypatch, capsys, command, option):
    task = {"kind": "quadratic", "eigenvalues": [1.0]}
    compute = {"kind": "constant", "mean_s": 1.0}
    several = {"task": task, "compute": compute, "variants": [{"name": "one"}]}
    config = CONFIG | (several if command == "compare" else {})
    Path("config.yaml").write_text(json.dumps(config))
    monkeypatch.setitem(sys.modules, "ray", None)
    for module in ("real.ray.cluster", "experiment.trials.on_ray"):
        monkeypatch.delitem(sys.modules, f"outpace.{module}", raising=False)
    message = refused(capsys, command, "config.yaml", option, "ray", "--out", "out")
    assert "pip install 'outpace[cluster]'" in message
    assert len(message.splitlines()) == 1
    assert not Path("out").exists()


def test_an_address_without_a_cluster_is_named(folder, capsys):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for address, words in (
        (f"127.0.0.1:{port}", f"no Ray cluster answers at 127.0.0.1:{port}"),
        ("ray://127.0.0.1:10001", "the address of a Ray client"),
        ("127.0.0.1", "must be HOST:PORT, auto or local"),
    ):
        message = refused(capsys, "run", "config.yaml", "--address", address, "--out", "out")
        assert words in message
        assert len(message.splitlines()) == 1
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["launcher.elastic.workers=[2, 8]"],
            "elastic.workers: workers, the number at the start, must be from 2 to 8, not 1",
        ),
        (["launcher.elastic.workers=[8, 2]"], "must be two numbers from 1 to 1000, the least and"),
        (["launcher.elastic.settle_s=1"], "launcher.elastic: needs workers, servers, or both"),
        (
            ["launcher.elastic.workers=[1, 2]", "on_worker_loss=stop"],
            "launcher.elastic: workers that are lost with their node come back where there is room",
        ),
        (
            ["launcher.elastic.servers=[1, 3]", "sync.kind=gossip"],
            "launcher.elastic.servers: gossip has none; leave it out",
        ),
        (
            ["launcher.elastic.workers=[1, 3]", "sync.kind=drop-stragglers", "sync.quorum=2"],
            "launcher.elastic.workers: the configuration does not fit 1 worker",
        ),
        (
            ["launcher.elastic.workers=[1, 3]", "checkpoint=null"],
            "launcher.elastic: a run begins again from a checkpoint with other numbers of",
        ),
    ],
)
def test_what_cannot_come_and_go_with_the_nodes_is_refused(folder, capsys, overrides, words):
    given = ["workers=2"] if any(each.startswith("sync") for each in overrides) else []
    given.append("checkpoint.every_s=60")
    command = ["run", "config.yaml", "--launcher", "ray", *given, *overrides, "--out", "out"]
    message = refused(capsys, *command)
    assert words in message
    assert len(message.splitlines()) == 1
    assert not Path("out").exists()


SERVERS, WORKERS = ["server-0", "server-1"], ["worker-0", "worker-1", "worker-2"]


def test_what_a_cluster_lacks_is_named_with_what_to_do():
    groups = groups_of(Ray(servers="strict-spread"), SERVERS, WORKERS)
    where = "each process on one node, and launcher.servers is strict-spread"
    assert lacking(groups, {"CPU": 3.0}) == f"the run needs 5 CPU (3 free), {where}"
    assert no_room(groups, ["server-1", "worker-7"], {"CPU": 1.0}) == (
        "the cluster has no room for server-1, worker-7 (server-1, worker-7 needs 2 CPU (1 free), "
        f"{where}): add a node, or free resources"
    )


def test_a_node_that_cannot_take_part_is_named():
    from outpace.real.ray.survey import Survey, problem_of

    here = Survey("1.2.0", "3.11.4", "2.9.0")
    for there, words in (
        (Survey("1.1.0", "3.11.4", "2.9.0"), "has Outpace 1.1.0, and this machine 1.2.0"),
        (Survey("1.2.0", "3.12.0", "2.9.0"), "has Python 3.12.0, and this machine 3.11.4"),
        (Survey("1.2.0", "3.11.9", "2.8.0"), "has torch 2.8.0, and this machine 2.9.0"),
        (Survey("1.2.0", "3.11.9", "2.9.0", ("/x/train.py",)), "does not have /x/train.py"),
    ):
        assert problem_of(there, here, "/out/.t").startswith(words)
    # The folder of the run need not exist.
    assert problem_of(Survey("1.2.0", "3.11.9", "2.9.0", ("/out/.t",)), here, "/out/.t") == ""
