"""Carries out a run on a node of a cluster.

A cluster manager passes on what the run tells. The run has its folder on the node, and its files
are sent after it has ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import TextIOBase
from pathlib import Path
from queue import Empty, Queue
from typing import Final, TypeAlias

from outpace.experiment.trials.arriving import Piece, pieces_of
from outpace.experiment.trials.one import Ended, Order, Told, carry_out
from outpace.real.process.ray.left_behind import PassingFolder

_MOST: Final = 1000  # messages that nothing has fetched; then the run must wait


@dataclass(frozen=True, slots=True)
class Printed:
    """A line that the run has printed."""

    line: str
    error: bool


Remote: TypeAlias = Told | Printed | Piece


# One thread for all runs of a process: a fork server ends with the thread that has started it.
_THREAD: Final = ThreadPoolExecutor(1)


def carry_out_on_node(order: Order, stopped: Callable[[], str | None]) -> Iterator[list[Remote]]:
    """Carry out a run; yield what it tells, its files, and at last an `Ended`.

    Args:
        stopped: see `carry_out`.
    """
    passing = folder = None
    if order.folder is not None:
        passing = PassingFolder("outpace-runs-")
        folder = Path(passing.path) / order.folder.name  # some trackers call the run by this name
    told: Queue[Remote | None] = Queue(_MOST)
    run = _THREAD.submit(_run, order, folder, told.put, stopped)
    run.add_done_callback(lambda _: told.put(None))
    while (taken := _taken(told)) is not None:
        yield taken
    ended = run.result()
    if folder is not None and folder.is_dir():
        for piece in pieces_of(folder):
            yield [piece]
    if passing is not None:
        passing.close()
    yield [ended]


def _run(
    order: Order,
    folder: Path | None,
    tell: Callable[[Remote], None],
    stopped: Callable[[], str | None],
) -> Ended:
    with (
        contextlib.redirect_stdout(_Lines(lambda line: tell(Printed(line, error=False)))),
        contextlib.redirect_stderr(_Lines(lambda line: tell(Printed(line, error=True)))),
    ):
        return carry_out(order, folder, tell, stopped)


class _Lines(TextIOBase):
    """A stream that calls `say` with each line that is written to it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._rest = say, ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._say(line)
        return len(text)


def _taken(told: Queue[Remote | None]) -> list[Remote] | None:
    """Wait for messages, and return all that are there; None: there will be no more."""
    first = told.get()
    if first is None:
        return None
    taken = [first]
    with contextlib.suppress(Empty):
        while (each := told.get_nowait()) is not None:
            taken.append(each)
        told.put(None)
    return taken
