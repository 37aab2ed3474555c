"""Processes of a real run come and go as nodes do, which are simulated here.

`tests/real/process/test_ray.py` does it on a Ray cluster.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outpace import run
from outpace.real.control import RealControl
from outpace.real.elastic.deciding import Rules
from outpace.real.elastic.view import ClusterView, Node
from outpace.real.elastic.watching import Elastic
from outpace.real.process.launcher import Role, answered
from outpace.real.process.local import LocalLauncher
from outpace.record.checkpoints import Checkpoints
from outpace.record.folder import LOG

CONFIG: dict[str, Any] = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0] * 8},
    "workers": 3,
    "servers": 2,
    "sync": {"kind": "bsp"},
    "probe": False,
    "compute": {"kind": "constant", "mean_s": 0.01},
    "checkpoint": {"every_s": 0.2},
    "stop": {"iterations": 100_000},
}
ROLES = ["worker-0", "worker-1", "worker-2", "server-0", "server-1"]


def places(without: AbstractSet[str]) -> type[LocalLauncher]:
    """Return a launcher of this machine that has no place for these roles."""

    class Places(LocalLauncher):
        def start(self, role: Role) -> None:
            if role.name not in without:
                super().start(role)

        def no_room(self, names: Sequence[str]) -> Future[str]:
            missing = ", ".join(without & set(names))
            return answered(f"the cluster has no room for {missing}" if missing else "")

    return Places


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes")
def test_a_run_that_begins_again_without_room_for_all_has_fewer_workers_until_there_is(
    tmp_path, monkeypatch
):
    folder, runs, without = tmp_path / "run", [], set[str]()

    def look() -> Future[ClusterView]:
        places = {name: "n" for name in ROLES if name not in without}
        found = Future[ClusterView]()
        found.set_result(ClusterView([Node("n", "n", {} if without else {"CPU": 1.0})], places))
        return found

    @contextmanager
    def launch(*_: Any, **__: Any) -> Iterator[dict[str, Any]]:
        each = {"worker": {"CPU": 1.0}, "server": {"CPU": 1.0}}
        elastic = Elastic(Rules((2, 3), None, each, settle_s=0.2), look)
        yield {"launcher": partial(places(without), address="127.0.0.1"), "elastic": elastic}

    def control(control: RealControl) -> None:
        attempt = len(runs)

        def follow() -> None:
            coordinator = control._coordinator
            if attempt == 1 and Checkpoints(folder).numbers():
                without.add("worker-2")
                os.kill(runs[0].launcher.pids["server-1"], signal.SIGKILL)
                return
            if attempt > 1 and len(events(folder, "scaled")) == 2:
                assert coordinator.view().workers == ROLES[:3]
                coordinator.end("the test has seen enough")
                return
            control.at(control._now() / 1e9 + 0.02, follow)

        if list(control._coordinator.workers) == ROLES[:2]:
            without.clear()
        control.at(0.1, follow)

    monkeypatch.setattr("outpace.experiment.running.launch_of", launch)
    summary = run(CONFIG, folder, watch=runs.append, control=control).summary
    assert (summary["status"], summary["restarts"]) == ("complete", 1)
    assert [line["message"] for line in events(folder, "elastic")] == [
        "there is no room for worker-2: the run begins again with 2 workers",
        "there is room: 1 worker more",
    ]
    less, more = events(folder, "scaled")
    assert (less["fields"]["workers_before"], less["fields"]["workers"]) == (3, 2)
    assert (more["fields"]["workers_before"], more["fields"]["workers"]) == (2, 3)


def events(folder: Path, event: str) -> list[dict[str, Any]]:
    """The lines of the log about such events."""
    lines = map(json.loads, (folder / LOG).read_text().splitlines())
    return [line for line in lines if line["event"] == event]
