"""What a pool of runs asks of a cluster, and what the cluster tells it. Ray is not imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias


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
class Said:
    """The run of a slot has told this."""

    slot: int
    messages: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Lost:
    """A slot is lost, with its node perhaps, and is no more. node: empty if it had none."""

    slot: int
    node: str
    why: str


SlotNews: TypeAlias = Found | Placed | Refused | Said | Lost


class Slots(Protocol):
    """Slots on a cluster. Each carries out one run at a time.

    A slot may be lost before that is told: the methods then have no effect.
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
        """End the run of a slot, and leave its CPUs to others."""

    def begin(self, slot: int, *arguments: Any) -> None:
        """Have a slot carry out a run: call `carry_out` there."""

    def stop(self, slot: int, *arguments: Any) -> None:
        """Call `stop` in a slot."""

    def news(self) -> Iterable[SlotNews]:
        """Return what has happened since the last call."""
