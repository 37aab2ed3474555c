"""The worker process of a script in a real run: runs its program while the script waits.

The worker runs the same program as any other worker, a coroutine. While the user's code computes
a gradient, the program is suspended.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import zmq.utils.garbage  # noqa: F401  # its atexit handler must not be one of the script's

from outpace.engine.distributed.call import Call
from outpace.engine.scripts.ending import EndedEarly, RunOver, own_handler
from outpace.engine.scripts.worker import Presence
from outpace.kernel import WalkerError
from outpace.real.collective.script_collectives import Observer
from outpace.real.net.messages import TrainingDone
from outpace.real.net.report_messages import MOST_FILES, ScriptLog
from outpace.real.node.worker import ServedWorker
from outpace.real.node.worker_process import WorkerProcess
from outpace.real.script.saving import ScriptPart
from outpace.real.script.script_saver import ScriptSaver
from outpace.real.script.trainer import ScriptTrainer
from outpace.support.place import HERE
from outpace.support.units import Time, nanoseconds

_END_S: Final = 2.0  # seconds to learn that the run has ended, when a collective fails


class WorkerDriver:
    """Runs the program of a script's worker, and the script, in turns. Implements `Driver`.

    Args:
        work: the worker's program; see `Member.spawn`.
        presence: presence of the script in the run.

    Attributes:
        keeping: saves the state of the script, in a run with servers.
        part: saves the state of the script, in a run without servers.
        when_at_limit: called at stop.iterations.
    """

    def __init__(
        self,
        process: WorkerProcess,
        trainer: ScriptTrainer,
        work: Coroutine[Any, Any, None],
        presence: Presence,
        *,
        keeping: ScriptSaver | None = None,
        part: ScriptPart | None = None,
        when_at_limit: Callable[[], None] = lambda: None,
    ) -> None:
        self.process, self._trainer, self.script = process, trainer, trainer.script
        self.name, self.presence = process.name, presence
        self.keeping, self.part, self._when_at_limit = keeping, part, when_at_limit
        process.spawn(work)

    @property
    def program_iteration(self) -> int:
        """The iteration of the worker's program; the script may repeat an earlier one."""
        return self._trainer.iteration

    @property
    def is_ended_early(self) -> bool:
        stopped = self.process.stopped
        return self.presence.has_left and stopped is not None and stopped.early

    def log(self, values: Mapping[str, float]) -> None:
        iteration: int | None = self._trainer.iteration
        if self.keeping is not None and self.keeping.is_repeating:
            iteration = self.keeping.repeated_to_log
        if iteration is not None:  # otherwise the previous process has logged it
            self.process.log(iteration, values)

    @contextmanager
    def out_of_time(self) -> Iterator[None]:
        begun = self.process.now
        try:
            yield
        finally:
            if self.keeping is None or not self.keeping.is_repeating:
                self.process.untimed(self._trainer.iteration, begun, self.process.now)

    def attend(self) -> bool:
        """Handle exchanges with other workers, as in a computation; False if there are none.

        With `gossip` another worker may wait for this one's parameters.
        """
        return False

    def exit_at_limit(self) -> None:
        """Exit the script, because it waits for a worker that is at stop.iterations.

        Late workers have taken fewer steps, so they never join the same collectives.
        """
        if not self.presence.has_left:
            self._exit()

    def exit_if_over(self, limit_s: float) -> None:
        """Exit the script if the run is over, or ends within a time limit."""
        if self.presence.has_left:
            return
        until = self.process.now + nanoseconds(limit_s)
        while self.process.stopped is None and self.process.now < until:
            self._run_kernel(until)
        if self.process.stopped is not None:
            self.presence.has_left = True
            self._hand_over()
            self._exit()

    def _handle_messages(self) -> None:
        """Handle messages of the coordinator, and report if it is time."""
        self.process.kernel.catch_up()
        self.process.kernel.stop()
        self._run_kernel()

    def leave(self, *, fetch: bool, sets: bool) -> None:
        trainer, process = self._trainer, self.process
        if trainer.overlapped is not None:
            trainer.overlapped.leave()
        self.presence.has_left = process.is_over = True
        leaving = process.kernel.spawn(self._leave(fetch=fetch), f"{process.name} leaves")
        while not leaving.done and not process.stopped:
            self._run_kernel()
        self._hand_over(ended=True)
        if not leaving.done:
            self._exit()

    async def _leave(self, *, fetch: bool) -> None:
        parameters = await self.process.leave(fetch=fetch)
        if parameters:
            self.script.load(parameters)
        self.process.kernel.stop()

    def _drive(self) -> None:
        """Run the kernel until the script has to compute the next gradient."""
        self._run_kernel()
        if self.process.program.done or self.process.stopped:
            self.presence.has_left = True
            if not self.process.stopped:
                self._when_at_limit()
            self._hand_over()
            self._exit()

    def _exit(self) -> NoReturn:
        """Exit the script because the run is over."""
        stopped = self.process.stopped
        if stopped is not None and stopped.early:
            own_handler.call()
            raise EndedEarly
        why = stopped.reason if stopped else "stop.iterations is reached"
        print(f"outpace: {why}; the script of {self.process.name} ends here", file=sys.stderr)  # noqa: T201
        raise RunOver(0)

    def _run_kernel(self, until: Time | None = None) -> None:
        try:
            self.process.kernel.run(until)
        except WalkerError as error:
            raise error.error from None

    def _hand_over(self, *, ended: bool = False) -> None:
        """Report the end of the training, and send this worker's part of the run's result.

        ended: True if the script has ended.
        """
        process = self.process
        if self.keeping is not None:
            self.keeping.end()
        self.script.tell_own_buffers()
        if process.worker == 0:
            process.send_buffers(self.script.read_buffers())
        process.send_result()
        process.flush()
        process.coordinator.send(TrainingDone(process.pushed, ended, HERE.batch_size or 0))

    def tell_written(self, paths: Collection[str]) -> None:
        """Tell the coordinator which files the script has written."""
        if paths and not self.process.closed:
            self.process.coordinator.send(ScriptLog([], sorted(paths)[:MOST_FILES]))

    def end(self, error: Exception | None) -> None:
        process = self.process
        if process.closed:
            return
        self.presence.has_left = True
        try:
            if error is None:
                # not earlier, because the launcher ends a process that has finished
                process.finish()
            else:
                process.tell_failure(error)
        except Exception as failure:
            process.tell_failure(failure)
            raise
        finally:
            process.close()

    def close(self) -> None:
        self.process.close()


class OwnCollectives(Observer):
    """Records the time of a script's own collectives, such as barriers and sums of metrics.

    It is itself the observer if the strategy exchanges the gradients, because then there are no
    buckets.
    """

    def __init__(self, driver: WorkerDriver) -> None:
        self._driver, self._process, self._presence = driver, driver.process, driver.presence
        self._thread, self._pid = threading.get_ident(), os.getpid()
        self._paused: ServedWorker | None = None  # the object that is told that the script waits

    @property
    def now(self) -> Time:
        return self._process.now

    def attend(self) -> bool:
        process = self._process
        if not self._is_here:
            return False
        may_pause = self._paused is None and not self._presence.is_out
        if may_pause and isinstance(process, ServedWorker) and process.tells_pauses:
            process.pause()
            self._paused = process
        return self._driver.attend()

    def waited(self, call: Call, begun: int, ended: int, *, in_computation: bool = True) -> None:
        """See `Observer`.

        Args:
            in_computation: True if the wait is within the computation of a gradient; False if it is
                between the end of the computation and the end of the iteration, and so counts as
                part of the iteration.
        """
        process = self._process
        if not self._is_here or self._presence.is_out:
            return
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.resume()
        if not process.has_started:
            return
        begun, ended = begun - process.clock.origin, ended - process.clock.origin
        iteration = self._driver.program_iteration
        process.recorder.collective(process.worker, iteration, call.number, begun, ended, ended)
        if in_computation and not self._presence.is_elsewhere():
            process.not_computing(begun, ended)
            process.recorder.totals.communicate += ended - begun

    def broken(self, call: Call) -> None:
        # On a GPU a thread of torch hands over buckets while the script waits in `backward()`.
        is_in_backward = call.bucket is not None and os.getpid() == self._pid
        if self._is_here or is_in_backward:
            self._driver.exit_if_over(_END_S)

    def missed(self, call: Call, begun: int) -> None:
        if self._is_here:
            self.waited(call, begun, time.monotonic_ns())
            self._driver.exit_at_limit()

    @property
    def _is_here(self) -> bool:
        """True in the thread and process of the training; only these may report."""
        return (threading.get_ident(), os.getpid()) == (self._thread, self._pid)
