"""A user's own training script as a worker: `model, optimizer = outpace.attach(...)`.

The worker runs the same program as any other worker, a coroutine. While the user's code computes
a gradient, the program is suspended. `optimizer.step()` passes the gradient to the program and runs
the kernel until the program needs the next gradient; the model then has the next parameters.

The parameters in the optimizer's groups are exchanged. Model buffers (BatchNorm's averages) and
parameters that the optimizer does not have start as worker 0's. They are not exchanged after that,
except for buffers that the strategy averages. The run's result has worker 0's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
import zmq.utils.garbage  # noqa: F401  # its atexit handler must not be one of the script's

from outpace.engine.scripts.files import Written
from outpace.engine.scripts.kept import KeptState
from outpace.engine.scripts.misuse import require_log, require_step
from outpace.engine.scripts.running import EndedEarly, RunOver, own_handler
from outpace.engine.scripts.takeover import HeldState
from outpace.engine.scripts.watched_parameters import WatchedParameters
from outpace.kernel import WalkerError
from outpace.real.net.messages import TrainingDone
from outpace.real.net.report_messages import MOST_FILES, ScriptLog
from outpace.real.node.script.keeping import Keeping
from outpace.real.node.script.overlapped import OverlappedGradient
from outpace.real.node.script.peer_models import ScriptModels
from outpace.real.node.script.saving import ScriptSaver
from outpace.real.node.script.state import WorkerState
from outpace.real.node.script.trainer import ScriptTrainer
from outpace.real.node.worker import ServedWorker
from outpace.real.node.worker_process import WorkerProcess
from outpace.support.place import HERE
from outpace.support.units import Time, nanoseconds
from outpace.tasks.abort_points import Computation


class Attached:
    """A user's script and the program of its worker, which run in turns.

    Args:
        work: the worker's program; see `Member.spawn`.
        models: the script's parameters in a run without servers.
        kept: what the script keeps, in a run with servers.
        is_replaced: True if another process takes the place of this one when it is lost.
    """

    def __init__(
        self,
        process: WorkerProcess,
        trainer: ScriptTrainer,
        work: Coroutine[Any, Any, None],
        models: ScriptModels | None = None,
        kept: KeptState | None = None,
        *,
        is_replaced: bool = False,
    ) -> None:
        self.process, self._trainer, self._models = process, trainer, models
        self._is_untimed = False
        self.keeping: Keeping | None = None  # what the script keeps
        if kept is not None:
            assert isinstance(process, ServedWorker)
            self.keeping = Keeping(process, kept, self.is_elsewhere, reports=is_replaced)
        self.saver: ScriptSaver | None = None  # in a run without servers
        self.overlapped: OverlappedGradient | None = None  # with `overlap`
        self.watched: WatchedParameters | None = None  # if `step` takes the gradient
        holder = WorkerState(
            process, trainer, models, self._run_kernel, lambda: self._left, lambda: self._is_copy
        )
        self.state = HeldState(trainer.script, holder)
        process.spawn(work)
        self._left = False
        self.when_at_limit: Callable[[], None] = lambda: None  # called at stop.iterations
        self.warnings: list[str] = []  # told when the run begins
        self.written: Written | None = None  # files; None: nobody has looked at them
        self._pid = os.getpid()  # a process that the script forks has a copy of this object

    @property
    def _is_copy(self) -> bool:
        """True in a process that the script has forked."""
        return os.getpid() != self._pid

    @property
    def _repeats(self) -> bool:
        """True while the script computes iterations of which the servers have the gradients."""
        return self.keeping is not None and self.keeping.is_repeating

    def start(self) -> None:
        """Join the run; return when the first iteration may start."""
        self._drive()
        self.state.begin()
        if isinstance(self.process, ServedWorker) and self.process.has_ended:
            self.leave()
            raise RunOver(0)
        if self.saver is not None:
            self.saver.begin()
        if self.keeping is not None:
            self.keeping.restore()
        if self._models is not None:
            self._models.begin_iterations()
        if self.keeping is not None:
            self.keeping.begins(self._trainer.iteration)
        if self.watched is not None:
            self.watched.begin()
        for warning in self.warnings:
            HERE.tell(warning)

    @property
    def _iteration(self) -> int:
        """The iteration that the script computes, perhaps again."""
        repeats_left = 0 if self.keeping is None else self.keeping.repeats_left
        return self._trainer.iteration - repeats_left

    def is_elsewhere(self) -> bool:
        """True if a forward pass of this process is not one of the training."""
        return self._is_untimed or self._left or self._is_copy

    def is_passive(self) -> bool:
        """True if a backward pass of this process makes no gradient that is to be pushed."""
        repeats_left = 0 if self.keeping is None else self.keeping.repeats_left
        return self.is_elsewhere() or repeats_left > 0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Pass on the model's gradients; return when the model has the next parameters."""
        self._require_step()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._exit_if_ended_early()
        self._trainer.script.await_gpus()
        self._trainer.script.require_as_begun(self._iteration)
        if self.watched is not None:
            self.watched.at_step(self._trainer.iteration)
        self.state.before_step()
        if self.keeping is not None and self.keeping.repeat():
            self._handle_messages()
            self.exit_if_over(0.0)
            return loss
        self.process.program.notify(self._trainer.take_gradient())
        self._drive()
        if self.keeping is not None:
            self.keeping.begins(self._trainer.iteration)
        if self.saver is not None:
            self.saver.stepped()
        if self.watched is not None:
            self.watched.begin()
        return loss

    @property
    def _is_ended_early(self) -> bool:
        """True if the worker has left because the run was ended early."""
        stopped = self.process.stopped
        return self._left and stopped is not None and stopped.early

    def _require_step(self) -> None:
        """See `require_step`; a script that has a while to end by itself may call it."""
        left = self._left and not self._is_ended_early
        require_step(self.process.name, left=left, copy=self._is_copy, untimed=self._is_untimed)

    def _exit_if_ended_early(self) -> None:
        if self._is_ended_early:
            self._exit()

    def log(self, values: Mapping[str, float]) -> None:
        """See `outpace.log`; values: by column of metrics.parquet. Also after `outpace.finish`."""
        require_log(self.process.name, copy=self._is_copy)
        iteration: int | None = self._trainer.iteration
        if self.keeping is not None and self.keeping.is_repeating:
            iteration = self.keeping.repeated_to_log
        if iteration is not None:  # else the process that was here before has logged it
            self.process.log(iteration, values)

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """See `outpace.untimed`."""
        if self._is_untimed or self._left or self._is_copy or self._repeats:
            yield
            return
        begun, self._is_untimed = self.process.now, True
        try:
            yield
        finally:
            self._is_untimed = False
            self.process.untimed(self._trainer.iteration, begun, self.process.now)

    def waited_outside(
        self, number: int, begun: Time, ended: Time, *, in_computation: bool
    ) -> None:
        """Note that the script has waited for others in a collective of its own.

        Args:
            number: of the collective. begun, ended: in ns since the start of the run.
            in_computation: while it computes a gradient; else the wait is in another part of the
                iteration, which counts it.
        """
        process = self.process
        if self._left or not process.has_started:
            return
        process.recorder.collective(
            process.worker, self._trainer.iteration, number, begun, ended, ended
        )
        if in_computation and not self._is_untimed:
            process.not_computing(begun, ended)
            process.recorder.totals.communicate += ended - begun

    def pause(self) -> bool:
        """Tell servers that the script waits in a collective; False if they need not know."""
        process = self.process
        if self._left or not isinstance(process, ServedWorker) or not process.tells_pauses:
            return False
        process.pause()
        return True

    def resume(self) -> None:
        """Tell servers that the script goes on; only after `pause`."""
        assert isinstance(self.process, ServedWorker)
        if not self._left:
            self.process.resume()

    def exit_at_limit(self) -> None:
        """Exit the script: another worker has come to stop.iterations, and this one waits for it.

        Late workers have taken fewer steps then, so they never join the same collectives.
        """
        if not self._left:
            self._exit()

    def attend(self) -> bool:
        """Take part in exchanges with other workers, as in a computation; False if there are none.

        With `gossip` another worker may wait for this one's parameters.
        """
        if self._left or self._models is None or not self._models.exchanges:
            return False
        self.process.kernel.catch_up()
        return True

    def exit_if_over(self, limit_s: float) -> None:
        """Exit the script if the run is over, or is within a time limit."""
        if self._left:
            return
        until = self.process.now + nanoseconds(limit_s)
        while self.process.stopped is None and self.process.now < until:
            self._run_kernel(until)
        if self.process.stopped is not None:
            self._left = True
            self._hand_over()
            self._exit()

    def _handle_messages(self) -> None:
        """Handle what has come from the coordinator, and report if it is time."""
        self.process.kernel.catch_up()
        self.process.kernel.stop()
        self._run_kernel()

    def leave(self, *, fetch: bool = False) -> None:
        """Leave the run, so that no worker waits for this one. fetch: see `outpace.finish`."""
        if self._left or self._is_copy:
            return
        own = None if self.watched is None else self.watched.leave(fetch=fetch)[1]
        if self.overlapped is not None:
            self.overlapped.leave()
        self._left = self._trainer.is_over = True
        process = self.process
        leaving = process.kernel.spawn(self._leave(fetch), f"{process.name} leaves")
        while not leaving.done and not process.stopped:
            self._run_kernel()
        if own is not None:
            self._trainer.script.load([own])
        self._hand_over(ended=True)
        if not leaving.done:
            self._exit()

    async def _leave(self, fetch: bool) -> None:
        parameters = await self.process.leave(fetch=fetch)
        if parameters:
            self._trainer.script.load(parameters)
        self.process.kernel.stop()

    @contextmanager
    def abortable(self) -> Iterator[Computation]:
        """See `outpace.abortable`."""
        if self._left:
            yield Computation()
        else:
            with self._trainer.stopping() as computation:
                yield computation

    def _drive(self) -> None:
        """Run the kernel until the script has to compute the next gradient."""
        self._run_kernel()
        if self.process.program.done or self.process.stopped:
            self._left = True
            if not self.process.stopped:
                self.when_at_limit()
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

        ended: True if the script has come to its end.
        """
        process = self.process
        if self.keeping is not None:
            self.keeping.end()
        self._trainer.script.tell_own_buffers()
        if process.worker == 0:
            process.send_buffers()
        process.send_result()
        process.flush()
        process.coordinator.send(TrainingDone(process.pushed, ended, HERE.batch_size or 0))

    def end(self, error: Exception | None) -> None:
        """Leave the run at the end of the script, or report its error; later calls do nothing."""
        process = self.process
        if process.closed or self._is_copy:
            return
        try:
            if error is None:
                if self.written is not None and (paths := sorted(self.written.overwritten)):
                    process.coordinator.send(ScriptLog([], paths[:MOST_FILES]))
                self.leave()
                process.finish()  # not before: the launcher ends a process that has finished
            else:
                process.tell_failure(error)
        except RunOver:
            process.finish()
        except Exception as failure:
            process.tell_failure(failure)
            raise
        finally:
            if self.watched is not None:
                self.watched.close()
            process.close()

    def end_at_exit(self) -> None:
        """Call `end` at the end of a Python process, which keeps an unhandled error."""
        error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
        self.end(error if isinstance(error, Exception) else None)
