"""Slots as a cluster has them, whose nodes are objects of this process: no Ray is needed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from outpace.real.process.ray.node_processes import EXIT, MESSAGE, MISSING, NodeProcesses
from outpace.real.process.ray.slot_news import (
    Exited,
    LostNode,
    Missing,
    Placed,
    Printed,
    Refused,
    Said,
    SlotNews,
)
from outpace.support.processes import forking

TARGET = "outpace.experiment.trials.process:serve"


class _Files:
    """The files of a node, which says so if it is lost."""

    def __init__(self, node: _Node) -> None:
        self._node = node

    def list(self, folder: str) -> Sequence[tuple[str, int]]:
        self._node.require()
        return self._node.processes.files(folder)

    def read(self, path: str, begin: int, size: int) -> bytes:
        self._node.require()
        return self._node.processes.read(path, begin, size)

    def remove(self, folder: str) -> None:
        self._node.processes.remove(folder)


class _Node:
    def __init__(self, name: str, cpus: float, slots: SlotsHere) -> None:
        self.name, self.cpus = name, cpus
        self.slots: dict[int, float] = {}
        self.problem = ""
        self.lacks: set[str] = set()
        self.is_lost = False
        self.processes = NodeProcesses(os.getcwd(), forking.preloaded(), TARGET)
        self._thread = threading.Thread(target=self._listen, args=(slots,), daemon=True)
        self._thread.start()

    def require(self) -> None:
        if self.is_lost:
            raise ConnectionError(f"node {self.name} is lost")

    def _listen(self, slots: SlotsHere) -> None:
        while self.processes._thread.is_alive():
            for slot, kind, what in self.processes.news(0.05):
                if not self.is_lost:
                    slots.tell(_news(self, slot, kind, what))

    def close(self) -> None:
        self.processes.close()
        self._thread.join()


def _news(node: _Node, slot: int, kind: str, what: bytes) -> SlotNews:
    if kind == MESSAGE:
        return Said(slot, what)
    if kind == EXIT:
        return Exited(slot, what.decode())
    if kind == MISSING:
        return Missing(slot, node.name, f"does not have {what.decode()}")
    return Printed(slot, what.decode(), kind == "error")


class SlotsHere:
    """A `slot_news.Slots`. Use as a context manager. Slots are on the node with most free CPUs."""

    def __init__(self, **cpus: float) -> None:
        # By this thread: it would die with a node's.
        forking.start_fork_server()
        self.nodes = {}
        self._told = deque[SlotNews]()
        self._waiting: dict[int, float] = {}
        self._count = 0
        self.woken, self._wake = os.pipe()
        os.set_blocking(self.woken, False)
        for name, much in cpus.items():
            self.add(name, much)

    def __enter__(self) -> SlotsHere:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.close()
        os.close(self.woken)
        os.close(self._wake)

    def tell(self, news: SlotNews) -> None:
        self._told.append(news)
        os.write(self._wake, b"x")

    # -- what happens to a cluster -------------------------------------------------------

    def add(self, name: str, cpus: float) -> None:
        self.nodes[name] = _Node(name, cpus, self)
        self._place()

    def lose(self, name: str) -> None:
        """The node is lost, with all that is on it."""
        node = self.nodes.pop(name)
        node.is_lost = True
        node.close()
        self.tell(LostNode(name, tuple(node.slots)))

    def node_of(self, slot: int) -> _Node:
        return next(node for node in self.nodes.values() if slot in node.slots)

    # -- Slots -----------------------------------------------------------------------------

    def cpus(self) -> dict[str, float]:
        return {name: node.cpus for name, node in self.nodes.items() if not node.problem}

    def free_cpus(self) -> float:
        return sum(node.cpus - sum(node.slots.values()) for node in self.nodes.values())

    def survey(self, paths: Sequence[str], wait_s: float) -> dict[str, str]:
        found = {name: node.problem for name, node in self.nodes.items() if node.problem}
        for name, node in self.nodes.items():
            if missing := [p for p in paths if p in node.lacks or not Path(p).exists()]:
                found[name] = f"does not have {', '.join(missing)}"
        return found

    def ask(self, cpus: float) -> int:
        self._count += 1
        self._waiting[self._count] = cpus
        self._place()
        return self._count

    def _place(self) -> None:
        for slot, cpus in list(self._waiting.items()):
            free = {n: n.cpus - sum(n.slots.values()) for n in self.nodes.values()}
            node = max(free, key=lambda each: free[each], default=None)
            if node is not None and free[node] >= cpus:
                node.slots[slot] = self._waiting.pop(slot)
                refused = Refused(slot, node.name, node.problem)
                self.tell(refused if node.problem else Placed(slot, node.name))

    def give_back(self, slot: int) -> None:
        if self._waiting.pop(slot, None) is None:
            node = self.node_of(slot)
            node.processes.end(slot)
            del node.slots[slot]
            self._place()

    def begin(self, slot: int, message: bytes, paths: Sequence[str], anew: bool) -> None:
        self.node_of(slot).processes.begin(slot, message, paths, anew)

    def send(self, slot: int, message: bytes) -> None:
        self.node_of(slot).processes.send(slot, message)

    def interrupt(self, slot: int) -> None:
        self.node_of(slot).processes.interrupt(slot)

    def files(self, slot: int) -> _Files:
        return _Files(self.node_of(slot))

    def news(self) -> Iterator[SlotNews]:
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)
        while self._told:
            yield self._told.popleft()
