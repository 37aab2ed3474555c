"""Slots as a cluster has them, in processes of this machine: no Ray is needed."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from outpace.experiment.trials.remote import Runs
from outpace.real.process.ray.slot_news import Lost, Placed, Refused, Said, SlotNews
from outpace.support.processes import forking


class _Node:
    def __init__(self, cpus: float) -> None:
        self.cpus, self.problem = cpus, ""
        self.slots: dict[int, _Slot] = {}


class _Slot:
    """A slot with a process. cpus: that it takes up."""

    def __init__(self, number: int, cpus: float, slots: SlotsHere) -> None:
        self.cpus = cpus
        self._pipe, theirs = Pipe()
        with theirs:
            self.process = forking.start(f"run-{number}", _serve, theirs)
        self._is_ended = False
        self._thread = threading.Thread(target=self._listen, args=(number, slots), daemon=True)
        self._thread.start()

    def call(self, method: str, *arguments: Any) -> None:
        with contextlib.suppress(OSError):
            self._pipe.send((method, arguments))

    def _listen(self, number: int, slots: SlotsHere) -> None:
        try:
            while True:
                slots.tell(Said(number, self._pipe.recv()))
        except (EOFError, OSError):
            if not self._is_ended:
                slots.tell(Lost(number, slots.node_of(number), "killed"))

    def end(self) -> None:
        self._is_ended = True
        self.process.kill()
        self.process.join()
        self._thread.join()
        self._pipe.close()


def _serve(pipe: Connection) -> None:
    """Be the actor of a slot."""
    runs, begun = Runs(os.getcwd()), SimpleQueue[Any]()

    def listen() -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                method, arguments = pipe.recv()
                if method == "stop":
                    runs.stop(*arguments)
                else:
                    begun.put(arguments)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        for told in runs.carry_out(*begun.get()):
            pipe.send(told)


class SlotsHere:
    """A `slot_news.Slots`. Use as a context manager. Slots are on the node with most free CPUs."""

    def __init__(self, **cpus: float) -> None:
        self.nodes = {name: _Node(much) for name, much in cpus.items()}
        self._told = deque[SlotNews]()
        self._waiting: dict[int, float] = {}
        self._count = 0
        self.woken, self._wake = os.pipe()
        os.set_blocking(self.woken, False)

    def __enter__(self) -> SlotsHere:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            for slot in node.slots.values():
                slot.end()
        os.close(self.woken)
        os.close(self._wake)

    def tell(self, news: SlotNews) -> None:
        self._told.append(news)
        os.write(self._wake, b"x")

    # -- what happens to a cluster -------------------------------------------------------

    def add(self, name: str, cpus: float) -> None:
        self.nodes[name] = _Node(cpus)
        self._place()

    def lose(self, name: str) -> None:
        """The node is lost, with all that is on it."""
        for number, slot in self.nodes.pop(name).slots.items():
            slot.end()
            self.tell(Lost(number, name, "its node has died"))

    def node_of(self, slot: int) -> str:
        return next(name for name, node in self.nodes.items() if slot in node.slots)

    # -- Slots -----------------------------------------------------------------------------

    def cpus(self) -> dict[str, float]:
        return {name: node.cpus for name, node in self.nodes.items() if not node.problem}

    def free_cpus(self) -> float:
        return sum(map(_free, self.nodes.values()))

    def survey(self, paths: Sequence[str], wait_s: float) -> dict[str, str]:
        found = {name: node.problem for name, node in self.nodes.items() if node.problem}
        if missing := [path for path in paths if not Path(path).exists()]:
            found |= dict.fromkeys(self.nodes, f"does not have {', '.join(missing)}")
        return found

    def ask(self, cpus: float) -> int:
        self._count += 1
        self._waiting[self._count] = cpus
        self._place()
        return self._count

    def _place(self) -> None:
        for slot, cpus in list(self._waiting.items()):
            name = max(self.nodes, key=lambda each: _free(self.nodes[each]), default=None)
            if name is not None and _free(node := self.nodes[name]) >= cpus:
                node.slots[slot] = _Slot(slot, self._waiting.pop(slot), self)
                refused = Refused(slot, name, node.problem)
                self.tell(refused if node.problem else Placed(slot, name))

    def give_back(self, slot: int) -> None:
        if self._waiting.pop(slot, None) is None:
            for node in self.nodes.values():
                if slot in node.slots:
                    node.slots.pop(slot).end()
            self._place()

    def begin(self, slot: int, *arguments: Any) -> None:
        self._slot(slot).call("carry_out", *arguments)

    def stop(self, slot: int, *arguments: Any) -> None:
        self._slot(slot).call("stop", *arguments)

    def _slot(self, number: int) -> _Slot:
        return self.nodes[self.node_of(number)].slots[number]

    def news(self) -> Iterator[SlotNews]:
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)
        while self._told:
            news = self._told.popleft()
            if isinstance(news, Lost):
                self.give_back(news.slot)
            yield news


def _free(node: _Node) -> float:
    return node.cpus - sum(slot.cpus for slot in node.slots.values())
