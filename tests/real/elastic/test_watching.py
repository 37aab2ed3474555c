"""What a run in which nodes come and go says, and when: cluster and coordinator are simulated."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.errors import ConfigError
from outpace.kernel import Kernel
from outpace.real.elastic import watching
from outpace.real.elastic.deciding import Rules
from outpace.real.elastic.view import ClusterView, Node, RunView
from outpace.real.elastic.watching import Elastic, Failure, NodeWatcher
from outpace.record.event_log import EventLog
from outpace.record.folder import LOG
from outpace.sync.membership.events import AskedToScale, TooFewPlaces

ONE = {"CPU": 1.0}
ROOM = ClusterView([Node("a", "a", ONE)], {"worker-0": "a", "worker-1": "a", "server-0": "a"})
RUN = RunView(["worker-0", "worker-1"], ["server-0"])
FAILS = Failure(5, "ConnectionError: no answer")


class Watched:
    """A run with a watcher, in virtual time. refused: why it refuses all changes."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        folder: Path,
        *,
        refused: str = "",
        view: RunView = RUN,
        cluster: ClusterView | None = ROOM,
    ) -> None:
        self.looking = SimpleNamespace(latest=cluster, failure=None, again=lambda: None)
        monkeypatch.setattr(watching, "Looking", lambda look: self.looking)
        self.kernel, self.started, self.refused = Kernel(), True, refused
        self.servers, self.workers = view.servers, view.workers
        self.view: Callable[[], RunView | None] = lambda: view
        self.lines: list[str] = []
        self.scaling = self.survival = self
        self.state = SimpleNamespace(
            resume=None, table=SimpleNamespace(has_begun=True, returning=[])
        )
        self.clock = self.kernel
        self._events = EventLog(folder / LOG)
        self._events.open()
        self.log = self._events
        self._file = folder / LOG
        rules = Rules((1, 3), None, {"worker": ONE, "server": ONE}, 4.0)
        self.watcher = NodeWatcher(Elastic(rules, Future), self.lines.append, self._events)
        self.watcher.attach(self)  # type: ignore[arg-type]

    def wait(self, duration_s: float) -> None:
        self.kernel.spawn(self._sleep(duration_s), "the test")
        self.kernel.run()

    async def _sleep(self, duration_s: float) -> None:
        await self.kernel.sleep(duration_s)

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


def test_a_change_that_is_accepted_is_said_with_its_reason(monkeypatch, tmp_path):
    run = Watched(monkeypatch, tmp_path)
    run.wait(5.5)
    assert run.lines == [f"elastic: {MORE}"]
    assert run.log.elastic == MORE
    (event,) = run.events
    assert (event["event"], event["message"], event["fields"]["workers"]) == ("elastic", MORE, 3)


def test_a_change_that_is_refused_is_not_said_to_be_made(monkeypatch, tmp_path):
    why = "workers: the run is about to end"
    run = Watched(monkeypatch, tmp_path, refused=why)
    run.wait(5.5)
    assert run.lines == [f"elastic: {MORE}; not done: {why}"]
    assert run.log.elastic == f"{MORE}; not done: {why}"
    assert [event["message"] for event in run.events] == [f"{MORE}; not done: {why}"]


def test_a_run_whose_lost_worker_has_no_place_begins_again_without_it(monkeypatch, tmp_path):
    cluster = ClusterView([Node("a", "a")], {"worker-0": "a", "server-0": "a"})
    run = Watched(monkeypatch, tmp_path, cluster=cluster)
    run.wait(5.5)  # its loss is not known yet
    run.state.table.returning = ["worker-1"]
    run.wait(1)
    assert (run.told.workers, run.told.servers) == (1, None)
    why = "there is no room for worker-1: the run begins again with 1 worker"
    assert run.lines[-1] == f"elastic: {why}"
    assert run.events[-1]["fields"]["without"] == ["worker-1"]


@pytest.mark.parametrize("is_training", [True, False])
def test_it_is_said_once_that_there_is_no_room_for_a_server(monkeypatch, tmp_path, is_training):
    without = ClusterView([Node("a", "a")], {"worker-0": "a", "worker-1": "a"})
    busy = RunView(RUN.workers, RUN.servers, is_busy=True)
    run = Watched(monkeypatch, tmp_path, view=busy, cluster=without)
    if not is_training:
        run.view = lambda: None
    run.wait(3.5)
    assert run.lines == []
    for _ in range(2):
        run.wait(60)
        (line,) = run.lines
        assert line.startswith("elastic: there is no room for server-0, without which the run")
        run.lines.clear()
        run.looking.latest = ROOM
        run.wait(60 if not is_training else 2)
        assert run.lines == []
        run.looking.latest = without


def test_it_is_said_once_that_looking_fails_and_once_that_it_works_again(monkeypatch, tmp_path):
    run = Watched(monkeypatch, tmp_path, cluster=None)
    run.looking.failure = FAILS._replace(times=4)
    run.wait(20)
    assert run.lines == []
    for _ in range(2):
        run.looking.failure = FAILS
        run.wait(60)
        (line,) = run.lines
        assert "failed 5 times in a row (ConnectionError: no answer): the run keeps" in line
        assert 'Check with "ray status"' in line
        run.looking.failure = None
        run.wait(60)
        assert run.lines[1:] == ["elastic: looking at the nodes of the cluster works again"]
        run.lines.clear()
