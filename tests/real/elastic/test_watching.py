"""The messages of a run whose nodes change; cluster and coordinator are simulated."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.kernels import run_for

from outpace.errors import ConfigError
from outpace.kernel import Kernel
from outpace.real.elastic.deciding import ClusterView, Node, Rules, RunView
from outpace.real.elastic.watching import Elastic, NodeWatcher
from outpace.record.event_log import EventLog
from outpace.record.folder import LOG
from outpace.sync.membership.events import AskedToScale, TooFewPlaces

ONE = {"CPU": 1.0}
ROOM = ClusterView([Node("a", "a", ONE)], {"worker-0": "a", "worker-1": "a", "server-0": "a"})
RUN = RunView(["worker-0", "worker-1"], ["server-0"])


class Watched:
    """A run with a watcher, in virtual time. refused: the reason why it refuses all changes."""

    def __init__(
        self,
        folder: Path,
        *,
        refused: str = "",
        view: RunView = RUN,
        cluster: ClusterView = ROOM,
    ) -> None:
        self.cluster: ClusterView | Exception = cluster
        self.kernel, self.started, self.refused = Kernel(), True, refused
        self.view: Callable[[], RunView] = lambda: view
        self.lines: list[str] = []
        self.scaling = self.survival = self
        self.clock = self.kernel
        self._events = EventLog(folder / LOG)
        self._events.open()
        self.log = self._events
        self._file = folder / LOG
        rules = Rules({"worker": (1, 3)}, {"worker": ONE, "server": ONE}, 4.0)
        self.watcher = NodeWatcher(Elastic(rules, self.look), self.lines.append, self._events)
        self.watcher.attach(self)  # type: ignore[arg-type]

    def look(self) -> Future[ClusterView]:
        found = Future[ClusterView]()
        if isinstance(self.cluster, Exception):
            found.set_exception(self.cluster)
        else:
            found.set_result(self.cluster)
        return found

    def wait(self, duration_s: float) -> None:
        run_for(self.kernel, duration_s)

    @property
    def events(self) -> list[dict[str, Any]]:
        if not self._file.exists():
            return []
        return [json.loads(line) for line in self._file.read_text().splitlines()]

    def scale(self, asked: AskedToScale) -> str:
        if self.refused:
            raise ConfigError(self.refused)
        self.asker = asked.asker
        return "worker-2 will join"

    def tell(self, event: TooFewPlaces) -> None:
        self.told = event


MORE = "there is room: 1 worker more"


def test_a_change_that_is_accepted_is_said_with_its_reason(tmp_path):
    run = Watched(tmp_path)
    run.wait(6.5)
    assert run.lines == [f"elastic: {MORE}"]
    assert run.log.elastic == MORE
    (event,) = run.events
    assert (event["event"], event["message"], event["fields"]["workers"]) == ("elastic", MORE, 3)


def test_a_run_whose_lost_worker_has_no_place_begins_again_without_it(tmp_path):
    cluster = ClusterView([Node("a", "a")], {"worker-0": "a", "server-0": "a"})
    run = Watched(tmp_path, cluster=cluster)
    run.wait(6.5)  # its loss is not known yet
    assert run.lines == []
    run.view = lambda: replace(RUN, may_grow=False, needs_places=True)
    run.wait(6.5)
    assert (run.told.workers, run.told.servers) == (1, None)
    why = "there is no room for worker-1: the run begins again with 1 worker"
    assert run.lines == [f"elastic: {why}"]
    assert run.events[-1]["fields"]["without"] == ["worker-1"]


def test_it_is_said_once_that_the_cluster_cannot_be_looked_at(tmp_path):
    run = Watched(tmp_path)
    for _ in range(2):
        run.cluster = ConnectionError("no answer\nof the cluster")
        run.wait(60)
        (line,) = [line for line in run.lines if "cannot be looked at" in line]
        assert "(ConnectionError: no answer): the run keeps" in line
        run.lines.clear()
        run.cluster = replace(ROOM, nodes=[])
        run.wait(60)
        assert run.lines == []
