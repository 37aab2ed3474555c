"""The actions of the launcher on the processes of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Processes:
    """The actions of the launcher on the processes of a run.

    start: starts one of a generation for a worker; None: none can be started. no_room: says that
    there is no place on a cluster for some of these names, and why; empty: all have one. kill: ends
    the lost one of a name. release: gives back the place of one that has left or is about to.
    reserve: asks for places for these names, which are waited for `room_s` at most.
    all_again: True if all can be started again.
    """

    start: Callable[[int, int], None] | None = None
    no_room: Callable[[Sequence[str]], str] = lambda names: ""
    kill: Callable[[str], None] = lambda name: None
    release: Callable[[str], None] = lambda name: None
    reserve: Callable[[Sequence[str]], None] = lambda names: None
    room_s: float = 0.0
    all_again: bool = False


def with_room(error: str, no_room: str, *, is_saved: bool) -> str:
    """Return an error about late processes, with the room that they lack and what to do.

    no_room: see `Processes`. is_saved: the run has a checkpoint to go on from.
    """
    if not no_room:
        return error
    then = "; then go on from the last checkpoint (--resume)" if is_saved else ""
    return f"{error}: {no_room}{then}"
