"""Carries runs out in processes of this machine, each of which is used for the next run again."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Final

from outpace.experiment.trials.carrier import KILLED, Told
from outpace.experiment.trials.one import End
from outpace.experiment.trials.orders import Order
from outpace.experiment.trials.process import Begin, Said, Stop, serve
from outpace.support.processes import forking

_GRACE_S: Final = 20.0  # for the runs to complete their folders before they are killed


@dataclass(eq=False, slots=True)
class _Process:
    """A process, and the number of the run that it carries out at the moment.

    runs: how many it has begun. keeps_times: True if it has measured run times, for later runs.
    """

    process: forking.Process
    run: int | None = None
    runs: int = 0
    keeps_times: bool = False


class ProcessesHere:
    """A `Carrier` on this machine.

    Args:
        most: runs at a time.
        runs_each: see `Pool`.
    """

    def __init__(self, most: int, runs_each: int) -> None:
        self.most = most
        self._runs_each = runs_each
        self._processes: dict[Connection, _Process] = {}

    @property
    def waited_for(self) -> Sequence[Connection]:
        return [pipe for pipe, each in self._processes.items() if each.run is not None]

    def expect(self, waiting: Sequence[bool]) -> float:
        return math.inf

    def has_room(self, all_cores: bool) -> bool:
        return len(self.waited_for) < self.most

    def begin(self, run: int, order: Order, all_cores: bool) -> None:
        pipe, process = self._idle()
        process.run, process.runs = run, process.runs + 1
        process.keeps_times |= all_cores
        with contextlib.suppress(OSError):  # it was killed, which `take` notices
            pipe.send(Begin(replace(order, key=None), all_cores))

    def stop(self, run: int, reason: str) -> None:
        for pipe, process in self._processes.items():
            if process.run == run:
                with contextlib.suppress(OSError):  # it was killed, which `take` notices
                    pipe.send(Stop(reason))

    def take(self, ready: Iterable[object]) -> Iterator[Told]:
        for pipe in ready:
            if isinstance(pipe, Connection) and pipe in self._processes:
                yield self._told(pipe)

    def close(self) -> None:
        deadline_s = time.monotonic() + _GRACE_S
        try:
            for pipe, each in self._processes.items():
                each.process.terminate()
                pipe.close()
            for each in self._processes.values():
                each.process.join(max(0.0, deadline_s - time.monotonic()))
        finally:  # a second Ctrl-C does not wait
            for pipe, each in self._processes.items():
                each.process.kill()
                pipe.close()
                each.process.join()
                each.process.close()
            self._processes.clear()

    def _idle(self) -> tuple[Connection, _Process]:
        """Return the first process without a run; measured run times are kept in it."""
        for pipe, process in list(self._processes.items()):
            if process.run is None:
                is_used_up = process.runs >= self._runs_each and not process.keeps_times
                if process.process.is_alive() and not is_used_up:
                    return pipe, process
                self._remove(pipe)
        ours, theirs = Pipe()
        with theirs:
            started = forking.start(f"run-{len(self._processes)}", serve, theirs)
        process = self._processes[ours] = _Process(started)
        return ours, process

    def _told(self, pipe: Connection) -> Told:
        """Return a message of a process that carries out a run."""
        process = self._processes[pipe]
        run = process.run
        assert run is not None
        try:
            said: Said = pipe.recv()
        except (EOFError, OSError):
            process.process.join()
            error = f"{KILLED}{forking.how_it_ended(process.process)}"
            said = End("failed", error, {"status": "failed", "error": error})
            self._remove(pipe)
        if isinstance(said, End):
            process.run = None
        return run, said

    def _remove(self, pipe: Connection) -> None:
        """Forget a process that has ended, or ends when its pipe is closed."""
        process = self._processes.pop(pipe).process
        pipe.close()
        process.join()
        process.close()
