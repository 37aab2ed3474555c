"""Runs experiments in virtual time side by side, each in a process of its own."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final, TypeAlias

from outpace.config.experiment import Experiment
from outpace.errors import OutpaceError
from outpace.experiment.running import simulate
from outpace.experiment.tracking import Tracking
from outpace.support import forking
from outpace.support.notices import warnings_to

_STEP: Final = 0.01  # of a run, between two messages about its progress
_GRACE_S: Final = 20.0  # for the runs to complete their folders before they are killed

# Each process of a run would import them, which takes as long as a short run.
forking.preload(__name__)
forking.preload("outpace.report.page")

# An experiment, the new folder for its results, and how trackers call the run.
Order: TypeAlias = tuple[Experiment, Path, str]


@dataclass(frozen=True, slots=True)
class _End:
    """The last message about a run; its error, or None."""

    error: str | None


_Said: TypeAlias = float | str | _End  # the share that is done, a warning, or the end


def simulate_beside(
    orders: Sequence[Order],
    processes: int,
    progress: Callable[[int, float], None],
    warning: Callable[[int, str], None],
) -> Iterator[tuple[int, str | None]]:
    """Run the experiments, at most `processes` at a time.

    Closing the iterator, or Ctrl-C, interrupts the runs that are under way; their folders are
    completed and marked partial. A process that is killed ends its own run only.

    Args:
        progress: called with the index of an order and the share of its run that is done.
        warning: called with the index of an order and a warning about its run.

    Yields:
        The index of each order when its run has ended, and the error that ended it, or None.
    """
    waiting = deque(enumerate(orders))
    running: dict[Connection, tuple[int, ForkServerProcess]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                index, order = waiting.popleft()
                ours, theirs = Pipe(duplex=False)
                with theirs:
                    running[ours] = index, forking.start(f"run-{index}", _simulate, theirs, *order)
            for pipe in wait(list(running)):
                assert isinstance(pipe, Connection)
                index, process = running[pipe]
                try:
                    said: _Said = pipe.recv()
                except EOFError:
                    process.join()
                    how = forking.how_it_ended(process)
                    said = _End(f"the process of the run {how}; compare again with --resume")
                match said:
                    case float():
                        progress(index, said)
                    case str():
                        warning(index, said)
                    case _End():
                        del running[pipe]
                        _end(pipe, process)
                        yield index, said.error
    finally:
        _interrupt(running)


def _interrupt(running: Mapping[Connection, tuple[int, ForkServerProcess]]) -> None:
    """Interrupt the runs and wait until they have ended; kill those that take too long."""
    deadline_s = time.monotonic() + _GRACE_S
    try:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join(max(0.0, deadline_s - time.monotonic()))
    finally:  # a second Ctrl-C does not wait
        for pipe, (_, process) in running.items():
            process.kill()
            _end(pipe, process)


def _end(pipe: Connection, process: ForkServerProcess) -> None:
    pipe.close()
    process.join()
    process.close()


def _simulate(answer: Connection, experiment: Experiment, folder: Path, name: str) -> None:
    """Run one experiment; send its progress, its warnings, and at the end an `_End`.

    SIGTERM interrupts the run, which then completes its folder.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sent = 0.0

    def progress(share: float) -> None:
        nonlocal sent
        if share - sent >= _STEP:
            sent = float(share)
            answer.send(sent)

    error = None
    try:
        with warnings_to(answer.send, others=True):
            simulate(experiment, folder, progress=progress, tracker=Tracking(name))
    except (OutpaceError, OSError) as found:
        error = str(found)
    except KeyboardInterrupt:
        error = "interrupted"
    answer.send(_End(error))
