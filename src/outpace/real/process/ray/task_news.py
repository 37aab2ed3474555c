"""What a simulated run on a cluster tells before its own messages, or at its end. Without Ray."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Began:
    """A node has taken a run. If there is a problem, or something is missing, that is all.

    Attributes:
        node: its name.
        problem: why the node cannot take part, completes "node NAME "; empty: it can.
        missing: those of the wanted paths that are not there.
    """

    node: str
    problem: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunLost:
    """A run is lost, with its node perhaps."""

    why: str
