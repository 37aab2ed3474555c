"""Carries runs out on the nodes of a cluster, which decides where and when.

All runs are given to the cluster at once, so that a cluster that grows by itself sees what is asked
for.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final

from outpace.errors import ConfigError, RunError
from outpace.experiment.launching import files_of
from outpace.experiment.trials.arriving import Arriving, Piece
from outpace.experiment.trials.one import Ended, Order, Told
from outpace.experiment.trials.pool import Lost
from outpace.experiment.trials.remote import Printed, Remote, carry_out_on_node
from outpace.real.process.ray.survey import Began, RunLost
from outpace.support.streams import write_line

if TYPE_CHECKING:
    from outpace.real.process.ray.tasks import RayTask, RayTasks

_GRACE_S: Final = 60.0  # for the runs to complete their folders, and for these to come
_LOOK_S: Final = 0.05
_SAY_AFTER_S: Final = 3.0


@dataclass(eq=False, slots=True)
class _Run:
    """A run that was given to the cluster.

    Attributes:
        number: by which the pool names it.
        node: its name, once a node has taken the run.
        arriving: the folder of the run. failure: why that cannot arrive.
    """

    number: int
    order: Order
    all_cores: bool
    task: RayTask
    arriving: Arriving | None
    node: str = ""
    failure: str = ""


class RunsElsewhere:
    """A `pool.Carrier` on the nodes of a cluster.

    Args:
        tasks: the cluster; the connection is not closed with this object.
        cpus: that each run takes up; None: one, and if it needs all cores, those of the node that
            has most.
        most: runs at a time; None: as many as there is room for.
        wait_s: for room for the first run, and again when all are lost.
        say: called with a line about lost nodes, or what is awaited.
    """

    waited_for: Sequence[Connection] = ()  # see `look_s`

    def __init__(
        self,
        tasks: RayTasks,
        *,
        cpus: float | None = None,
        most: int | None = None,
        wait_s: float = 60.0,
        say: Callable[[str], None],
    ) -> None:
        self._tasks, self._cpus, self._most = tasks, cpus, math.inf if most is None else most
        self._wait_s, self._say = wait_s, say
        self._runs: dict[int, _Run] = {}  # by number
        self._ended: list[tuple[int, Ended]] = []  # runs that no node had taken
        self._refused: dict[str, str] = {}  # nodes, and why they cannot take part
        self._starved_since: float | None = None
        self._has_said = False
        self._is_closed = False

    @property
    def look_s(self) -> float:
        return _LOOK_S if self._runs or self._ended else math.inf

    # -- room ----------------------------------------------------------------------------

    def has_room(self) -> bool:
        return len(self._runs) < self._most

    def _needed(self, all_cores: bool) -> float:
        """Return how many CPUs a run takes up."""
        if self._cpus is not None:
            return self._cpus
        return max([1.0, *self._tasks.cpus().values()]) if all_cores else 1.0

    def require_room(self, all_cores: bool) -> None:
        """Wait until a run could begin. Raises ConfigError if none could in time."""
        try:
            while True:
                task = self._tasks.begin(self._needed(all_cores), (), _nothing)
                try:
                    began = self._first_of(task, all_cores)
                finally:
                    task.cancel()
                if began is not None and not self._refuses(began):
                    break
        except RunError as error:
            raise ConfigError(str(error)) from None
        self._starved_since = None

    def _first_of(self, task: RayTask, all_cores: bool) -> Began | None:
        """Wait until a node has taken a run; None: it was lost before. Raises RunError."""
        while True:
            for told in task.told():
                return told if isinstance(told, Began) else None
            self._starve(all_cores)
            time.sleep(_LOOK_S)

    def _refuses(self, began: Began) -> bool:
        """True if a node cannot take part."""
        if began.problem:
            self._tasks.refuse(began.node)
            if began.node not in self._refused:
                self._refused[began.node] = began.problem
                self._say(f"node {began.node} {began.problem}; no run begins there")
        return bool(began.problem)

    def _require_progress(self) -> None:
        """If no run is under way, say so, or raise RunError after a while."""
        if not self._runs or any(run.node for run in self._runs.values()):
            self._starved_since = None
        else:
            self._starve(next(iter(self._runs.values())).all_cores)

    def _starve(self, all_cores: bool) -> None:
        """No run is under way: say so, or raise RunError after a while."""
        now = time.monotonic()
        if self._starved_since is None:
            self._starved_since, self._has_said = now, False
        waited_s, needed = now - self._starved_since, self._needed(all_cores)
        if self._refused and needed > max(self._tasks.cpus().values(), default=0.0):
            raise RunError(f"on: {self._lack(needed)}")
        if waited_s < min(_SAY_AFTER_S, self._wait_s):
            return
        # Ray does not say whether a run waits for room, or for its process to start.
        has_room = needed <= max(self._tasks.free_cpus().values(), default=0.0)
        if waited_s >= self._wait_s and has_room:
            raise RunError(
                f"on: no node has begun a run within {self._wait_s:g} s, though there is room: "
                "look at the cluster with `ray status`, or wait longer (wait_s)"
            )
        if waited_s >= self._wait_s:
            raise RunError(
                f"on: {self._lack(needed)}; waited {self._wait_s:g} s for it: ask for fewer "
                "CPUs with --cpus (cpus), or wait longer (wait_s)"
            )
        if not has_room and not self._has_said:
            self._has_said = True
            self._say(f"waiting for room on the cluster: {self._lack(needed)}")

    def _lack(self, needed: float) -> str:
        for node, problem in self._refused.items():
            return f"node {node} {problem}"
        nodes = self._tasks.cpus()
        if max(nodes.values(), default=0.0) < needed:
            return (
                f"a run needs {needed:g} CPU, and no node of the cluster has more than "
                f"{max(nodes.values(), default=0.0):g}"
            )
        free = sum(self._tasks.free_cpus().values())
        return (
            f"a run needs {needed:g} CPU of one node, and {free:g} of the "
            f"cluster's {sum(nodes.values()):g} are free"
        )

    # -- runs ----------------------------------------------------------------------------

    def begin(self, run: int, order: Order, all_cores: bool) -> None:
        arriving = None if order.folder is None else Arriving(order.folder)
        self._runs[run] = _Run(run, order, all_cores, self._begin(order, all_cores), arriving)

    def _begin(self, order: Order, all_cores: bool) -> RayTask:
        paths = files_of(order.experiment)
        return self._tasks.begin(self._needed(all_cores), paths, carry_out_on_node, order)

    def stop(self, run: int, reason: str) -> None:
        if (found := self._runs.get(run)) is None:
            return
        if found.node:
            found.task.stop(reason)
        else:
            del self._runs[run]
            found.task.cancel()
            summary = {"status": "partial", "error": reason}
            self._ended.append((run, Ended(found.order.key, "stopped", reason, summary)))

    def take(self, ready: Iterable[object]) -> Iterator[tuple[int, Told | Lost]]:
        yield from self._ended
        self._ended.clear()
        for run in list(self._runs.values()):
            for told in run.task.told():
                match told:
                    case Began():
                        yield from self._began(run, told)
                    case RunLost():
                        yield from self._lose(run, told)
                    case _:
                        for said in told:
                            yield from self._heard(run, said)
                if self._runs.get(run.number) is not run or not run.node:  # it has another task
                    break
        # Not before what has come was read: this process may have been busy for long.
        self._require_progress()

    def _began(self, run: _Run, began: Began) -> Iterator[tuple[int, Told]]:
        if self._refuses(began):
            run.task = self._begin(run.order, run.all_cores)
            return
        run.node = began.node
        if began.missing:
            error = f"node {began.node} does not have {', '.join(began.missing)}"
            yield from self._heard(run, Ended.failed(run.order.key, error))

    def _heard(self, run: _Run, said: Remote) -> Iterator[tuple[int, Told]]:
        """Take what a run has told."""
        match said:
            case Printed():
                write_line(sys.stderr if said.error else sys.stdout, said.line)
            case Piece():
                self._arrive(run, said)
            case Ended():
                self._arrive(run, said)
                del self._runs[run.number]
                if run.failure:
                    said = Ended.failed(run.order.key, run.failure, said.cpu_s)
                yield run.number, said
            case _:
                yield run.number, said

    def _arrive(self, run: _Run, what: Piece | Ended) -> None:
        """Take a piece of a file of the run, or all of them when it has ended."""
        if run.arriving is None or run.failure:
            return
        try:
            if isinstance(what, Piece):
                run.arriving.add(what)
            else:
                run.arriving.complete(what)
        except Exception as error:  # the pool waits for this run
            run.failure = f"the files of the run cannot be brought from node {run.node}: {error}"
            run.arriving.abandon()

    def _lose(self, run: _Run, lost: RunLost) -> Iterator[tuple[int, Lost]]:
        where = f"on node {run.node}" if run.node else "without a node"
        self._say(f"a run {where} was lost, and begins again: {lost.why}")
        del self._runs[run.number]
        if run.arriving is not None:
            run.arriving.abandon()
        yield run.number, Lost(f"was lost {where} ({lost.why})")

    # -- the end -------------------------------------------------------------------------

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            for run in list(self._runs):
                self.stop(run, "interrupted")
            deadline_s = time.monotonic() + _GRACE_S
            while self._runs and time.monotonic() < deadline_s:
                time.sleep(_LOOK_S)
                for _ in self.take(()):
                    pass
        finally:  # a second Ctrl-C does not wait
            for each in self._runs.values():
                each.task.cancel()
                if each.arriving is not None:
                    each.arriving.abandon()
            self._runs.clear()


def _nothing(_: object) -> Iterator[list[Remote]]:
    """Be a run that tells whether there is room for others."""
    return iter(())
