"""What a pool of runs asks of a cluster, and what the cluster tells it. Ray is not imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class Found:
    """There is room for a slot; whether its node can take part is not known yet."""

    slot: int
    node: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A slot can be used."""

    slot: int
    node: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A slot is on a node that cannot take part. problem: completes "node NAME "."""

    slot: int
    node: str
    problem: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Nothing was begun: the node lacks a path that was given to `begin`, or `begin` failed there.

    problem: as above.
    """

    slot: int
    node: str
    problem: str


@dataclass(frozen=True, slots=True)
class Said:
    """The process of a slot has sent a message."""

    slot: int
    message: bytes


@dataclass(frozen=True, slots=True)
class Printed:
    """The process of a slot has printed a line."""

    slot: int
    line: str
    error: bool


@dataclass(frozen=True, slots=True)
class Exited:
    """The process of a slot has ended. how: "was killed by SIGKILL", for example."""

    slot: int
    how: str


@dataclass(frozen=True, slots=True)
class LostNode:
    """A node is lost, or its actor. slots: those that were there; they are no more."""

    node: str
    slots: Sequence[int]


SlotNews: TypeAlias = Found | Placed | Refused | Missing | Said | Printed | Exited | LostNode


class NodeFiles(Protocol):
    """The files of a node. Methods raise OSError; ConnectionError if the node is lost."""

    def list(self, folder: str) -> Sequence[tuple[str, int]]:
        """Return paths in the folder and sizes of all files; of a folder, its path and -1."""

    def read(self, path: str, begin: int, size: int) -> bytes:
        """Return so many bytes of a file, or fewer at its end."""

    def remove(self, folder: str) -> None:
        """Remove a folder, later."""


class Slots(Protocol):
    """Slots on a cluster. Each has a process, which is started by `begin`.

    A slot may be lost with its node before that is told: `give_back`, `send` and `interrupt` then
    have no effect.
    """

    woken: int  # a file descriptor, which can be read when there are news

    def cpus(self) -> Mapping[str, float]:
        """Return the CPUs of each node that can take part, by its name."""

    def free_cpus(self) -> float:
        """Return how many CPUs of the cluster nothing uses."""

    def survey(self, paths: Sequence[str], wait_s: float) -> Mapping[str, str]:
        """Look at all nodes; return by name why some cannot take part.

        Args:
            paths: must be there.
            wait_s: for the answers of the nodes.
        """

    def ask(self, cpus: float) -> int:
        """Ask for a slot, and return its number. `news` says when there is one."""

    def give_back(self, slot: int) -> None:
        """End the process of a slot, and leave its CPUs to others."""

    def begin(self, slot: int, message: bytes, paths: Sequence[str], anew: bool) -> None:
        """Send a message to the process of a slot, which is started if there is none.

        Args:
            paths: must be there; else `Missing` is told.
            anew: end the process that the slot has, and start another one.
        """

    def send(self, slot: int, message: bytes) -> None:
        """Send a message to the process of a slot; no effect if it has ended."""

    def interrupt(self, slot: int) -> None:
        """Send SIGTERM to the process of a slot; no effect if it has ended."""

    def files(self, slot: int) -> NodeFiles:
        """Return the files of the node of a slot; they can be used when the slot is no more."""

    def news(self) -> Iterable[SlotNews]:
        """Return what has happened since the last call."""
