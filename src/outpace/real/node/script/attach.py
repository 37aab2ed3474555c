"""A user's own training script as a worker: `model, optimizer = outpace.attach(...)`.

The worker's program is the same coroutine as everywhere. It is suspended where it computes a
gradient while the user's code does so; `optimizer.step()` hands it over and runs the kernel
until the program is there again, with the parameters that the strategy allows.

What is exchanged are the parameters in the optimizer's groups. Buffers (BatchNorm's
averages) and parameters the optimizer does not have start as worker 0's and then stay
each worker's own; the run's result has worker 0's.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import zmq.utils.garbage  # noqa: F401  # its atexit, registered before ours, runs after it

from outpace.config.experiment import Experiment
from outpace.errors import RunError
from outpace.kernel import Kernel, Walker, WalkerError
from outpace.real.net.messages import StopRun, TrainingDone
from outpace.real.net.transport import Caller
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.script.model import ScriptModel
from outpace.real.node.script.peer import ScriptPeer
from outpace.real.node.script.takeover import has_taken_steps, take_over
from outpace.real.node.script.worker import ScriptWorker
from outpace.tasks.abort_points import Computation


class RunOver(SystemExit):
    """The run has ended while this script still wanted to train: it ends here, without error."""


class Scripted(Protocol):
    """A worker that trains a script's model; with servers, or without."""

    name: str
    worker: int
    kernel: Kernel
    coordinator: Caller
    stopped: StopRun | None
    closed: bool

    @property
    def extras(self) -> torch.Tensor: ...

    def work(self) -> Coroutine[Any, Any, None]:
        """All of its part in the run."""

    def gradient(self) -> Any:
        """What its program is to be handed for this step."""

    def goodbye(self, program: Walker[None], *, fetch: bool) -> Coroutine[Any, Any, None]:
        """Leave the run; `fetch`: with the final parameters, once all have left."""

    def hand_over(self) -> None:
        """The training is over for it: send what is part of the run's result."""

    def tell_of_lost_state(self) -> None:
        """A person, that what the optimizer has gathered so far has no effect, if it is so."""

    def stopping(self) -> Any:
        """The context in which a computation may be stopped."""

    def send_extras(self, extras: torch.Tensor) -> None: ...
    def flush(self) -> None: ...
    def finish(self) -> None: ...
    def tell_failure(self, error: BaseException) -> None: ...
    def close(self) -> None: ...


class Attached:
    """A script and its worker's program, which take turns."""

    def __init__(self, worker: Scripted, optimizer: torch.optim.Optimizer) -> None:
        self.worker, self._optimizer = worker, optimizer
        self._program = worker.kernel.spawn(worker.work(), worker.name)
        self._left = False

    def start(self) -> None:
        """Join the run; returns when the first iteration may start."""
        if has_taken_steps(self._optimizer):
            self.tell_of_lost_state()
        self._drive()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Hand over the gradients of the model's parameters; return with the next parameters
        in it."""
        if self._left:
            raise RunError(f"{self.worker.name} has left the run: it cannot take another step")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._program.notify(self.worker.gradient())
        self._drive()
        return loss

    def leave(self, *, fetch: bool = False) -> None:
        """No data left: nobody waits for this worker any more. `fetch`: the final parameters."""
        if self._left:
            return
        self._left = True
        worker = self.worker
        goodbye = worker.kernel.spawn(
            worker.goodbye(self._program, fetch=fetch), f"{worker.name} leaves"
        )
        while not goodbye.done and not worker.stopped:
            self._run_kernel()
        self._hand_over()
        if not goodbye.done:
            raise self._run_over

    def tell_of_lost_state(self) -> None:
        """If it is."""
        if not self._left:
            self.worker.tell_of_lost_state()

    @contextmanager
    def abortable(self) -> Iterator[Computation]:
        """See `outpace.abortable`."""
        if self._left:
            yield Computation()
        else:
            with self.worker.stopping() as computation:
                yield computation

    def _drive(self) -> None:
        """Until the user's code has to go on."""
        self._run_kernel()
        if self._program.done or self.worker.stopped:
            self._left = True
            self._hand_over()
            raise self._run_over

    @property
    def _run_over(self) -> RunOver:
        stopped = self.worker.stopped
        if stopped is not None and stopped.early:
            return RunOver("outpace: the run was ended early")
        why = stopped.reason if stopped else "stop.iterations is reached"
        print(f"outpace: {why}; the script of {self.worker.name} ends here", file=sys.stderr)  # noqa: T201
        return RunOver(0)

    def _run_kernel(self) -> None:
        try:
            self.worker.kernel.run()
        except WalkerError as error:
            raise error.error from None

    def _hand_over(self) -> None:
        """The training is over for this worker. Worker 0's buffers are part of the result."""
        worker = self.worker
        if worker.worker == 0 and (extras := worker.extras).numel():
            worker.send_extras(extras)
        worker.hand_over()
        worker.flush()
        worker.coordinator.send(TrainingDone())


def attached(
    link: CoordinatorLink,
    number: int,
    experiment: Experiment,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
) -> Attached:
    """The worker that `optimizer.step()` now drives; still to be started.

    Raises ConfigError if this model, or its optimizer, cannot be shared.
    """
    script = ScriptModel(model, optimizer)
    kind: Any = ScriptWorker if experiment.peers is None else ScriptPeer
    kind.require_fit(script, experiment)
    found = Attached(kind(link, number, experiment, script), optimizer)
    take_over(optimizer, found.step, found.tell_of_lost_state)
    atexit.register(_at_exit, found)  # if whoever runs the script does not end it
    return found


def end_script(attached: Attached, error: Exception | None) -> None:
    """The script is over: leave the run, or say what went wrong. Once."""
    worker = attached.worker
    if worker.closed:
        return
    try:
        if error is None:
            attached.leave()
            worker.finish()  # not before: the launcher ends who has finished
        else:
            worker.tell_failure(error)
    except RunOver:
        worker.finish()
    except Exception as failure:
        worker.tell_failure(failure)
        raise
    finally:
        worker.close()


def _at_exit(found: Attached) -> None:
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)  # unhandled
    end_script(found, error if isinstance(error, Exception) else None)
