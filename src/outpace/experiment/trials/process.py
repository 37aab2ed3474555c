"""A process of a pool: it carries out one run after the other, here or on a node of a cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

from outpace.experiment.tracking import Tracking
from outpace.experiment.trials.one import End, Stopped, carry_out
from outpace.experiment.trials.orders import Order
from outpace.support.processes import forking

_STEP: Final = 0.01  # of a run, between two messages about its progress

# Each process would import them, which takes as long as a short run.
forking.preload(__name__)
forking.preload("outpace.report.page")


@dataclass(frozen=True, slots=True)
class Begin:
    """Tells a process to carry out a run. may_fork: the run may start processes."""

    order: Order
    may_fork: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """Tells a process to end its run."""

    reason: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """An evaluation of the run: the values of a `Point`, without its key."""

    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """The run has written its files to this folder of the node, from which they are fetched."""

    folder: str


Said: TypeAlias = float | str | Evaluated | End  # a number: the share done; a text: a warning


def serve(pipe: Connection, base: str | None = None) -> None:
    """Carry out the runs that come through the pipe, until it is closed.

    SIGTERM interrupts the run that is under way, which then completes its folder. If the pipe is
    closed, or no run is under way, it ends the process.

    Args:
        base: a folder of this node in which the runs write their folders; it is said by `Written`,
            before the `End`. None: they write to the folders of their orders.
    """
    process = _Process(pipe, base)
    signal.signal(signal.SIGTERM, process.terminate)
    with contextlib.suppress(EOFError, OSError, Stopped):
        while True:
            told = pipe.recv()
            if isinstance(told, Begin):  # a Stop was for a run that had ended
                process.carry_out(told)


class _Process:
    def __init__(self, pipe: Connection, base: str | None) -> None:
        self._pipe, self._base = pipe, base
        self._sent = 0.0  # the share done
        self._under_way = False

    def carry_out(self, begin: Begin) -> None:
        """Run, and send the progress, the evaluations, the warnings, and at the end an `End`."""
        multiprocessing.current_process().daemon = not begin.may_fork
        self._sent = 0.0
        self._under_way = True
        folder = begin.order.folder
        if self._base is not None and folder is not None:
            # Of the same name: some trackers call the run by it.
            folder = Path(tempfile.mkdtemp(dir=self._base)) / folder.name
        end = carry_out(
            begin.order.experiment,
            folder,
            Tracking(begin.order.name),
            progress=self._progress,
            evaluated=self._evaluated,
            warning=self._send,
            other_warnings=True,
        )
        self._under_way = False
        if self._base is not None and folder is not None and folder.is_dir():
            self._send(Written(str(folder)))
        self._send(end)

    def terminate(self, _: int, __: FrameType | None) -> None:
        if not self._under_way:
            raise SystemExit
        raise Stopped("interrupted")  # the pipe is closed, which ends the process afterwards

    def _progress(self, share: float) -> None:
        self._stop_if_told()
        if share - self._sent >= _STEP:
            self._sent = float(share)
            self._send(self._sent)

    def _evaluated(self, values: dict[str, Any]) -> None:
        self._send(Evaluated(values))
        self._stop_if_told()

    def _stop_if_told(self) -> None:
        with contextlib.suppress(OSError):  # the pipe is closed, and SIGTERM comes
            if self._pipe.poll() and isinstance(told := self._pipe.recv(), Stop):
                raise Stopped(told.reason)

    def _send(self, said: Said | Written) -> None:
        with contextlib.suppress(OSError):  # the pool is being closed and no longer reads
            self._pipe.send(said)
