"""A cluster of nodes on which runs are carried out, in processes of this machine: without Ray."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from outpace.real.process.ray.survey import Began, RunLost
from outpace.support.processes import forking


class _Node:
    def __init__(self, cpus: float) -> None:
        self.cpus, self.problem, self.is_refused = cpus, "", False
        self.tasks: list[_Task] = []

    @property
    def free(self) -> float:
        return self.cpus - sum(task.cpus for task in self.tasks)


class _Task:
    """As `tasks.RayTask`. It has a process when a node has taken it."""

    def __init__(self, cluster: NodesHere, cpus: float, paths: Sequence[str], work: Any) -> None:
        self.cpus, self._paths, self._work, self._cluster = cpus, paths, work, cluster
        self._told: list[Any] = []
        self._pipe: Connection | None = None

    def begin(self, name: str, problem: str) -> None:
        missing = tuple(path for path in self._paths if not Path(path).exists())
        self._told.append(Began(name, problem, missing))
        self._pipe, theirs = Pipe()
        with theirs:
            work = None if problem or missing else self._work
            self.process = forking.start("run", _carry_out, theirs, work)

    def told(self) -> Iterator[Any]:
        self._cluster.place()
        while self._told:
            yield self._told.pop(0)
        try:
            while self._pipe is not None and self._pipe.poll():
                yield self._pipe.recv()
        except (EOFError, OSError):
            yield RunLost(self._cluster.end(self) or "killed")

    def stop(self, reason: str) -> None:
        assert self._pipe is not None
        self._pipe.send(reason)

    def cancel(self) -> None:
        self._cluster.end(self)

    def kill(self) -> None:
        if self._pipe is not None:
            self.process.kill()
            self.process.join()


def _carry_out(pipe: Connection, work: tuple[Callable[..., Any], tuple[Any, ...]] | None) -> None:
    if work is None:
        return
    reason: list[str] = []

    def listen() -> None:
        with contextlib.suppress(EOFError, OSError):
            reason.append(pipe.recv())

    threading.Thread(target=listen, daemon=True).start()
    carry_out, arguments = work
    for told in carry_out(*arguments, lambda: reason[0] if reason else None):
        pipe.send(told)


class NodesHere:
    """As `tasks.RayTasks`. Use as a context manager. Runs are on the node with most free CPUs."""

    def __init__(self, **cpus: float) -> None:
        self.nodes = {name: _Node(much) for name, much in cpus.items()}
        self._waiting: list[_Task] = []
        self._lost: dict[_Task, str] = {}

    def __enter__(self) -> NodesHere:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            for task in node.tasks:
                task.kill()

    # -- what happens to a cluster -------------------------------------------------------

    def add(self, name: str, cpus: float) -> None:
        self.nodes[name] = _Node(cpus)
        self.place()

    def lose(self, name: str) -> None:
        """The node is lost, with all that is on it."""
        for task in self.nodes.pop(name).tasks:
            self._lost[task] = "its node has died"
            task.kill()

    def end(self, task: _Task) -> str:
        """Free what a task takes up; return why it was lost, if it was with its node."""
        task.kill()
        for tasks in (self._waiting, *(node.tasks for node in self.nodes.values())):
            if task in tasks:
                tasks.remove(task)
        self.place()
        return self._lost.get(task, "")

    # -- as RayTasks ---------------------------------------------------------------------

    def cpus(self) -> dict[str, float]:
        return {name: node.cpus for name, node in self.nodes.items() if not node.is_refused}

    def free_cpus(self) -> dict[str, float]:
        self.place()
        return {name: node.free for name, node in self.nodes.items() if not node.is_refused}

    def survey(self, paths: Sequence[str], wait_s: float) -> dict[str, str]:
        found = {name: node.problem for name, node in self.nodes.items() if node.problem}
        if missing := [path for path in paths if not Path(path).exists()]:
            found |= dict.fromkeys(self.nodes, f"does not have {', '.join(missing)}")
        return found

    def refuse(self, node: str) -> None:
        self.nodes[node].is_refused = True

    def begin(
        self, cpus: float, paths: Sequence[str], carry_out: Callable[..., Any], *arguments: Any
    ) -> _Task:
        task = _Task(self, cpus, paths, (carry_out, arguments))
        self._waiting.append(task)
        self.place()
        return task

    def place(self) -> None:
        for node in self.nodes.values():
            node.tasks = [task for task in node.tasks if task.process.is_alive()]
        while self._waiting:
            usable = [name for name, node in self.nodes.items() if not node.is_refused]
            name = max(usable, key=lambda each: self.nodes[each].free, default=None)
            if name is None or self.nodes[name].free < self._waiting[0].cpus:
                return
            task = self._waiting.pop(0)
            self.nodes[name].tasks.append(task)
            task.begin(name, self.nodes[name].problem)
