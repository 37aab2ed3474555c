"""Runs experiments in virtual time side by side, each in a process of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final, TypeAlias

from outpace.config.experiment import Experiment
from outpace.errors import OutpaceError, RunError
from outpace.experiment.running import simulate
from outpace.support import forking

_STEP: Final = 0.01  # of a run, between two messages about its progress

Order: TypeAlias = tuple[Experiment, Path]  # an experiment and the new folder for its results


def simulate_beside(
    orders: Sequence[Order], processes: int, progress: Callable[[int, float], None]
) -> Iterator[tuple[int, str | None]]:
    """Run the experiments, at most `processes` at a time.

    Closing the iterator, or Ctrl-C, ends the runs that are under way; their folders stay readable
    and say that they are partial.

    Args:
        progress: called with the index of an order and the share of its run that is done.

    Yields:
        The index of each order when its run has ended, and the error that ended it, or None.

    Raises:
        RunError: if a process ended without an answer.
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
                    said = pipe.recv()
                except EOFError:
                    process.join()
                    how = forking.how_it_ended(process)
                    raise RunError(f"the process of the run {orders[index][1]} {how}") from None
                if isinstance(said, float):
                    progress(index, said)
                    continue
                del running[pipe]
                _end(pipe, process)
                yield index, said
    finally:
        for pipe, (_, process) in running.items():
            process.kill()
            _end(pipe, process)


def _end(pipe: Connection, process: ForkServerProcess) -> None:
    pipe.close()
    process.join()
    process.close()


def _simulate(answer: Connection, experiment: Experiment, folder: Path) -> None:
    """Run one experiment; send its progress, and at the end its error or None."""
    sent = 0.0

    def progress(share: float) -> None:
        nonlocal sent
        if share - sent >= _STEP:
            sent = float(share)
            answer.send(sent)

    error = None
    try:
        simulate(experiment, folder, progress=progress)
    except OutpaceError as found:
        error = str(found)
    answer.send(error)
