"""Carries out runs on a node of a cluster, called from far.

A cluster manager runs a `Runs` as an actor, and calls its methods in threads of the actor. A run
has its folder on the node, and its files are sent after it has ended.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import TextIOBase
from pathlib import Path
from queue import Empty, Queue
from shutil import rmtree
from typing import Final, TypeAlias

from outpace.experiment.trials.one import End
from outpace.experiment.trials.orders import Order
from outpace.experiment.trials.process import Said, carry_out_order
from outpace.real.process.ray.left_behind import PassingFolder

_PIECE: Final = 4 << 20  # bytes of a file that are in memory at a time
_MOST: Final = 1000  # messages that nothing has fetched; then the run must wait


@dataclass(frozen=True, slots=True)
class Printed:
    """A line that the run has printed."""

    line: str
    error: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """The next bytes of a file of the run. name: in its folder. data: None for a folder."""

    name: str
    data: bytes | None


Remote: TypeAlias = Said | Printed | Piece


class Runs:
    """Carries out runs in virtual time, one after the other.

    Args:
        folder: working folder, if it exists on this node.
    """

    def __init__(self, folder: str) -> None:
        if Path(folder).is_dir():
            os.chdir(folder)
        self._folder = PassingFolder("outpace-runs-")
        # One thread for all runs: a fork server ends with the thread that has started it.
        self._thread = ThreadPoolExecutor(1)
        self._stopped: dict[int, str] = {}

    def stop(self, number: int, reason: str) -> None:
        """End a run at its next evaluation or sooner, also if it has not begun yet."""
        self._stopped[number] = reason

    def carry_out(
        self, number: int, order: Order, node: str, paths: Sequence[str]
    ) -> Iterator[list[Remote]]:
        """Carry out a run; yield what it tells, its files, and at last an `End`.

        Args:
            number: names the run for `stop`.
            node: name of this node, for errors.
            paths: must be there; else the run fails.
        """
        if missing := [path for path in paths if not os.path.exists(path)]:
            error = f"node {node} does not have {', '.join(missing)}"
            yield [End("failed", error, {"status": "failed", "error": error})]
            return
        folder = None
        if order.folder is not None:
            # Of the same name: some trackers call the run by it.
            folder = Path(tempfile.mkdtemp(dir=self._folder.path)) / order.folder.name
        told: Queue[Remote | None] = Queue(_MOST)
        run = self._thread.submit(self._run, number, order, folder, told.put)
        run.add_done_callback(lambda _: told.put(None))
        while (taken := _taken(told)) is not None:
            yield taken
        end = run.result()
        self._stopped.pop(number, None)
        if folder is not None and folder.is_dir():
            for piece in _pieces(folder):
                yield [piece]
            rmtree(folder.parent, ignore_errors=True)
        yield [end]

    def _run(
        self, number: int, order: Order, folder: Path | None, tell: Callable[[Remote], None]
    ) -> End:
        with (
            contextlib.redirect_stdout(_Lines(lambda line: tell(Printed(line, error=False)))),
            contextlib.redirect_stderr(_Lines(lambda line: tell(Printed(line, error=True)))),
        ):
            return carry_out_order(order, folder, tell, lambda: self._stopped.get(number))


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


def _pieces(folder: Path) -> Iterator[Piece]:
    """Yield the folders and the files in a folder, these in pieces."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            yield Piece(name, None)
        elif path.is_file():
            with path.open("rb") as file:
                data = file.read(_PIECE)
                yield Piece(name, data)
                while data := file.read(_PIECE):
                    yield Piece(name, data)
