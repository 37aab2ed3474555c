"""Runs on a Ray cluster of three nodes, all of them on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import add, nodes, processes_of, until
from tests.support.paths import SCRIPTS

import outpace as library
from outpace.record import folder as files
from outpace.record.folder import LOG

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes"),
]
CONFIG: dict[str, Any] = {
    "task": {"kind": "digits-mlp"},
    "workers": 2,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "batch_size": 8,
    "deterministic": True,
    "probe": False,
    "stop": {"iterations": 20},
}
SLOW = CONFIG | {"compute": {"kind": "constant", "mean_s": 0.05}, "stop": {"iterations": 60}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with nodes("one", "two", "three", cpus=3) as cluster:
        yield cluster


def events(folder: Path, event: str) -> list[dict[str, Any]]:
    """Return the lines of the log about such events."""
    lines = map(json.loads, (folder / LOG).read_text().splitlines())
    return [line for line in lines if line["event"] == event]


def until_seen(change: Callable[[], None]) -> Callable[[Any], None]:
    """Return a control function that makes a change during the run, and ends the run after it.

    It is called again when the run continues from a checkpoint.
    """
    changing = threading.Thread(target=change)

    def control(control: Any) -> None:
        if changing.ident is None:
            changing.start()

        def look() -> None:
            if changing.is_alive():
                control.at(control._now() / 1e9 + 0.05, look)
            else:
                control._coordinator.end("the test has seen enough")

        control.at(control._now() / 1e9 + 0.1, look)

    return control


def of_role(cluster: Any, name: str) -> list[int]:
    """Return the process of a role, if there is one."""
    return [pid for pid, known in processes_of(cluster.folder).items() if known == name]


def actor_of(name: str) -> int:
    """Return the process of the actor of a role, whose run this process has started."""
    import ray

    actors = ray.util.list_named_actors(all_namespaces=True)
    (found,) = (each for each in actors if each["name"].partition(".")[0] == name)
    return int(ray.get(ray.get_actor(**found).__ray_call__.remote(lambda _: os.getpid())))


def kill(process: int) -> None:
    """Kill a process of the cluster."""
    assert process > 1
    assert process not in (os.getpid(), os.getppid()), "the process of the test itself is to live"
    os.kill(process, signal.SIGKILL)


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_bsp_on_three_nodes_is_bitwise_the_run_of_one_machine(cluster, tmp_path):
    ray = {
        "kind": "ray",
        "address": cluster.address,
        "workers": "strict-spread",
        "servers": "strict-spread",
    }
    result = library.run(CONFIG, tmp_path / "run", launcher=ray)
    local = library.run(CONFIG)
    assert result.summary["parameters_digest"] == local.summary["parameters_digest"]
    where = json.loads((tmp_path / "run" / files.SUMMARY).read_text())["nodes"]
    assert set(where) == {"server-0", "server-1", "worker-0", "worker-1"}
    assert set(where.values()) <= {"one", "two", "three"}
    assert where["server-0"] != where["server-1"]
    assert where["worker-0"] != where["worker-1"]
    assert "nodes" not in local.summary
    assert not of_role(cluster, "worker-0")


def killed(
    cluster: Any, tmp_path: Path, victim: Any, changes: Mapping[str, Any] | None = None
) -> tuple[Any, list[str]]:
    """Run on the cluster, call `victim` soon after the start; return result and messages."""
    said: list[str] = []
    config = SLOW | {"launcher": {"kind": "ray", "address": cluster.address}} | (changes or {})
    result = library.run(
        config,
        tmp_path / "run",
        control=lambda control: control.at(0.5, victim),
        log=said.append,
    )
    expected = library.simulate(SLOW).summary["parameters_digest"]
    # A worker that is killed between the pushes to the two servers loses an iteration.
    is_whole = result.summary["updates_lost"] == 0
    assert (result.summary["parameters_digest"] == expected) == is_whole, said
    assert result.summary["restarts"] >= 1, said
    return result, said


def test_nothing_of_a_run_outlives_its_killed_driver(cluster, tmp_path):
    before = set(processes_of(cluster.folder))
    (tmp_path / "config.yaml").write_text(json.dumps(SLOW | {"stop": {"iterations": 10_000}}))
    command = ["run", "config.yaml", "--launcher", "ray", "--address", cluster.address]
    environment = {key: value for key, value in os.environ.items() if key != "RAY_TMPDIR"}
    driver = subprocess.Popen(
        [sys.executable, "-m", "outpace", *command, "--out", "run"], cwd=tmp_path, env=environment
    )
    try:
        until(lambda: (tmp_path / "run" / LOG).exists() and len(of_role(cluster, "worker-1")) == 1)
    finally:
        driver.kill()
        driver.wait()
    roles = ("worker-0", "worker-1", "server-0", "server-1")
    until(lambda: not any(of_role(cluster, name) for name in roles))
    until(lambda: len(set(processes_of(cluster.folder)) - before) <= 4)  # Ray's idle workers


# A task that once kills its own actor, in the middle of a run.
DEADLY = """
import os, signal, sys
from pathlib import Path

import outpace
import torch

MARK = Path(__file__).with_name("killed")
calls = 0


def loss(output, target):
    global calls
    calls += 1
    if calls == 100 and not MARK.exists():
        assert "pytest" not in sys.modules, "the process of the test itself is to live"
        MARK.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.nn.functional.mse_loss(output, target)


def make():
    x = torch.linspace(-1, 1, 64)[:, None]
    return outpace.Task(model=torch.nn.Linear(1, 1), loss=loss, train=(x, x), test=(x, x))
"""


def test_a_comparison_on_the_cluster_is_bitwise_that_of_one_machine_though_a_run_is_lost(
    cluster, tmp_path, capfd
):
    (tmp_path / "task.py").write_text(DEADLY)
    config = {
        "task": {"kind": "python", "target": f"{tmp_path}/task.py:make"},
        "workers": 2,
        "compute": {"kind": "exponential", "mean_s": 0.1},
        "batch_size": 8,
        "evaluate": {"every_updates": 20},
        "stop": {"iterations": 100},
        "variants": [{"name": kind, "sync": {"kind": kind}} for kind in ("bsp", "asp")],
    }
    on = {"kind": "ray", "address": cluster.address, "wait_s": 300}
    out = tmp_path / "out"
    rows = library.compare(config, out, on=on, processes=1)
    assert (tmp_path / "killed").exists()
    local = library.compare(config)
    assert [row.error for row in rows] == [None, None]
    for digest in ("parameters_digest", "trace_digest"):
        assert [row.summary[digest] for row in rows] == [row.summary[digest] for row in local]
    for row in rows:
        assert (row.folder / files.REPORT).is_file()
        assert files.read_table(row.folder / files.TRACE).num_rows > 0
        assert files.read_summary(row.folder) == row.summary
    assert not any(path.name.endswith(".part") for path in out.rglob("*"))
    assert capfd.readouterr().out == ""
    names = processes_of(cluster.folder).values
    until(lambda: not any(name.startswith("ray::_") for name in names()))
    until(lambda: not list(cluster.temporary.glob("outpace-runs-*")))


def elastic_config(cluster: Any, **changes: Any) -> dict[str, Any]:
    each = {"cpu": 2}  # of three, so each node of the cluster has one process
    launcher = {
        "kind": "ray",
        "address": cluster.address,
        "wait_s": 20,
        "resources": {"worker": each, "server": each},
        "elastic": {"workers": [2, 3], "servers": [1, 2], "settle_s": 1},
    }
    return SLOW | {
        "servers": 1,
        "checkpoint": {"every_s": 5},
        "stop": {"iterations": 100_000},
        "launcher": launcher,
        **changes,
    }


def test_workers_of_a_script_join_on_a_new_node_and_the_run_continues_without_it(cluster, tmp_path):
    folder, runs, places = tmp_path / "run", [], []

    def change() -> None:
        six = add(cluster, "six", 2)
        try:
            until(lambda: len(events(folder, "scaled")) == 1)
            places.append(dict(runs[-1].nodes()))
        finally:
            cluster.remove_node(six, allow_graceful=False)
        until(lambda: len(events(folder, "scaled")) == 2)

    config = elastic_config(
        cluster,
        task={"kind": "script", "path": str(SCRIPTS / "elastic.py")},
        compute={"kind": "constant", "mean_s": 0.2},  # its epochs take minutes
    )
    del config["launcher"]["elastic"]["servers"], config["stop"], config["batch_size"]
    library.run(config, folder, control=until_seen(change), watch=runs.append)
    assert [line["message"] for line in events(folder, "elastic")] == [
        "there is room: 1 worker more",
        "there is no room for worker-2: the run begins again with 2 workers",
    ]
    assert places[0]["worker-2"] == "six"
    up, down = (line["fields"] for line in events(folder, "scaled"))
    assert (up["workers"], down["workers"]) == (3, 2)


# The last test, because the cluster has one node fewer afterwards.
def test_a_run_survives_a_node_that_is_killed_with_a_server(cluster, tmp_path):
    raylets = {
        node.all_processes["raylet"][0].process.pid: node.all_processes["raylet"][0].process
        for node in cluster.worker_nodes
    }

    killed_once: list[Any] = []

    def victim() -> None:
        if killed_once:  # `control` is called again when the run continues from its checkpoint
            return
        actors = [actor_of(f"server-{server}") for server in range(2)]
        found = {parent(actor) for actor in actors} & raylets.keys()
        assert found, (actors, raylets)
        raylet = raylets[found.pop()]
        raylet.kill()
        raylet.wait()
        killed_once.append(raylet)

    ray = {"kind": "ray", "address": cluster.address, "servers": "strict-spread"}
    changes = {"checkpoint": {"every_updates": 2}, "launcher": ray}
    result, said = killed(cluster, tmp_path, victim, changes)
    assert any(
        line.startswith("server-") and "the run continues from checkpoints/" in line
        for line in said
    ), said
    assert set(result.summary["nodes"].values()) <= {"one", "two", "three"}
