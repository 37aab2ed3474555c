"""The messages of a run in progress, and the process of a pool that carries runs out."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable
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


Said: TypeAlias = float | str | Evaluated | End  # a number: the share done; a text: a warning


def carry_out_order(
    order: Order,
    folder: Path | None,
    send: Callable[[Said], None],
    stopped: Callable[[], str | None],
) -> End:
    """Run, and send the progress, the evaluations and the warnings.

    Args:
        folder: for the results; None: there is none.
        stopped: returns why the run is to end now; None: it is not.
    """
    sent = 0.0  # the share done

    def stop_if_told() -> None:
        if (reason := stopped()) is not None:
            raise Stopped(reason)

    def progress(share: float) -> None:
        nonlocal sent
        stop_if_told()
        if share - sent >= _STEP:
            sent = float(share)
            send(sent)

    def evaluated(values: dict[str, Any]) -> None:
        send(Evaluated(values))
        stop_if_told()

    return carry_out(
        order.experiment,
        folder,
        Tracking(order.name),
        progress=progress,
        evaluated=evaluated,
        warning=send,
        other_warnings=True,
    )


def serve(pipe: Connection) -> None:
    """Carry out the runs that come through the pipe, until it is closed.

    SIGTERM interrupts the run that is under way, which then completes its folder. If the pipe is
    closed, or no run is under way, it ends the process.
    """
    process = _Process(pipe)
    signal.signal(signal.SIGTERM, process.terminate)
    with contextlib.suppress(EOFError, OSError, Stopped):
        while True:
            told = pipe.recv()
            if isinstance(told, Begin):  # a Stop was for a run that had ended
                process.carry_out(told)


class _Process:
    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._under_way = False

    def carry_out(self, begin: Begin) -> None:
        """Run, and send what happens, and at the end an `End`."""
        multiprocessing.current_process().daemon = not begin.may_fork
        self._under_way = True
        end = carry_out_order(begin.order, begin.order.folder, self._send, self._stopped)
        self._under_way = False
        self._send(end)

    def terminate(self, _: int, __: FrameType | None) -> None:
        if not self._under_way:
            raise SystemExit
        raise Stopped("interrupted")  # the pipe is closed, which ends the process afterwards

    def _stopped(self) -> str | None:
        with contextlib.suppress(OSError):  # the pipe is closed, and SIGTERM comes
            if self._pipe.poll() and isinstance(told := self._pipe.recv(), Stop):
                return told.reason
        return None

    def _send(self, said: Said) -> None:
        with contextlib.suppress(OSError):  # the pool is being closed and no longer reads
            self._pipe.send(said)
