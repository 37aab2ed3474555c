"""A user's own training script as a worker: `model, optimizer = outpace.attach(...)`.

The worker's program is the same coroutine as everywhere. It is suspended at `execute`
while the user's code computes; `optimizer.step()` hands it the gradients and runs the
kernel until it is at `execute` again, with the parameters that the strategy allows.

What is exchanged are the parameters in the optimizer's groups. Buffers (BatchNorm's
averages) and parameters the optimizer does not have start as worker 0's and then stay
each worker's own; the run's result has worker 0's.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import zmq.utils.garbage  # noqa: F401  # its atexit, registered before ours, runs after it

from outpace.aggregate import all_finite
from outpace.config import Experiment
from outpace.errors import DivergenceError, RunError
from outpace.kernel import WalkerError
from outpace.messages import Block, StepSettings, parts, whole
from outpace.programs.context import Stopped
from outpace.python_optimizer import PythonOptimizer
from outpace.real.bodies import Extras, Fetch, Initialize, Left
from outpace.real.gate import Refusals
from outpace.real.member import Link
from outpace.real.packing import packed, unpacked
from outpace.real.parameters import dtype_name, gradient_of, like, shared
from outpace.real.takeover import has_taken_steps, take_over
from outpace.real.wire import head_of
from outpace.real.worker import EndsIt, Worker
from outpace.tasks.boundaries import Boundaries, Computation
from outpace.torch_optimizers import plain_settings, require_known


class RunOver(SystemExit):
    """The run has ended while this script still wanted to train: it ends here, without error."""


def attached(
    link: Link, number: int, experiment: Experiment, model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
) -> AttachedWorker:  # fmt: skip
    """The worker that `optimizer.step()` now drives; still to be started."""
    if not isinstance(experiment.optimizer, PythonOptimizer):  # which is made on the servers
        require_known(type(optimizer))
    worker = AttachedWorker(link, number, experiment, model, optimizer)
    take_over(optimizer, worker.step, worker.tell_of_lost_state)
    atexit.register(_at_exit, worker)  # if whoever runs the script does not end it
    return worker


class AttachedWorker(Worker):
    """The user's model and optimizer; `step` is called instead of the optimizer's."""

    def __init__(
        self, link: Link, number: int, experiment: Experiment, model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
    ) -> None:  # fmt: skip
        self._model, self._optimizer = model, optimizer
        self._groups = [list(group["params"]) for group in optimizer.param_groups]
        self._names, self._parameters = shared(model, self._groups)
        self._dtype = self._parameters[0].dtype
        devices = {p.device for p in self._parameters}
        self._device = devices.pop() if len(devices) == 1 else None  # None: several
        self._current_settings()  # raises if they cannot travel
        super().__init__(link, number, experiment)
        self._limit = experiment.stop.iterations
        self._refuse = experiment.non_finite == "refuse"
        self._refusals = Refusals(self.notice)
        law = experiment.compute
        self._run_time = law and law.run_time(
            experiment.seed, experiment.workers, experiment.stop.iterations
        )
        self._slices = [slice(0, sum(self.layers))]
        self._step_settings: StepSettings | None = None
        self._iteration = 0
        self._boundaries = Boundaries(model)
        self._must_stop: Callable[[], bool] = lambda: False
        self._stopped: Stopped | None = None  # the computation of this iteration
        self._left = False
        self._program = self.kernel.spawn(self.work(), self.name)

    # -- what is trained ----------------------------------------------------------

    @property
    def layers(self) -> list[int]:
        return [p.numel() for p in self._parameters if p.numel()]

    @property
    def layout(self) -> str:
        dtype = dtype_name(self._dtype)
        return json.dumps(
            {
                "parameters": [
                    (name, list(p.shape), dtype)
                    for name, p in zip(self._names, self._parameters, strict=True)
                ],
                "extras": self._beside_layout(),
                "aliases": self._aliases(),
                "optimizer": type(self._optimizer).__name__,
                "groups": [len(group) for group in self._groups],
            }
        )

    def _beside(self) -> dict[str, torch.Tensor]:
        """What the model has beside the shared parameters: buffers, frozen parameters."""
        shared = {id(p) for p in self._parameters}
        named = {**dict(self._model.named_parameters()), **dict(self._model.named_buffers())}
        saved = self._model.state_dict(keep_vars=True)
        return {
            name: tensor
            for name, tensor in named.items()
            if id(tensor) not in shared and name in saved
        }

    def _beside_layout(self) -> list[tuple[str, list[int], str]]:
        return [(n, list(t.shape), dtype_name(t.dtype)) for n, t in self._beside().items()]

    def _aliases(self) -> list[tuple[str, str]]:
        """Further names of tensors that the model has more than once, with their first ones."""
        named = dict(zip(self._names, self._parameters, strict=True)) | self._beside()
        first = {id(tensor): name for name, tensor in named.items()}
        return [
            (name, first[id(tensor)])
            for name, tensor in self._model.state_dict(keep_vars=True).items()
            if name not in named and id(tensor) in first
        ]

    @property
    def extras(self) -> torch.Tensor:
        return packed(list(self._beside().values()))

    def take_extras(self, data: torch.Tensor) -> None:
        beside = self._beside()
        with torch.no_grad():
            for name, value in unpacked(self._beside_layout(), data).items():
                beside[name].copy_(value)

    def cut(self, slices: Sequence[slice]) -> list[Block]:
        self._slices = list(slices)
        flat = self._flat([p.detach() for p in self._parameters])
        return [flat[part].clone() for part in slices]

    def initialize(self, server: int, block: Block) -> Initialize:
        part = self._slices[server]
        places = {}
        place = 0
        for number, parameter in enumerate(self._parameters):
            low, high = max(place, part.start), min(place + parameter.numel(), part.stop)
            if low < high:
                places[id(parameter)] = number, low - part.start, high - part.start
            place += parameter.numel()
        groups = [[places[id(p)] for p in group if id(p) in places] for group in self._groups]
        return Initialize(
            type(self._optimizer).__name__, self._current_settings(), groups, head_of(block)
        )

    def _current_settings(self) -> list[dict[str, Any]]:
        known = self._optimizer.defaults
        return [plain_settings(group, known) for group in self._optimizer.param_groups]

    def settings(self) -> StepSettings | None:
        return self._step_settings

    def must_stop(self, iteration: int) -> bool:
        return self._limit is not None and iteration >= self._limit

    # -- the user's side -------------------------------------------------------------

    def start(self) -> None:
        """Join the run; returns when the first iteration may start."""
        if has_taken_steps(self._optimizer):
            self.tell_of_lost_state()
        self._drive()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Push the gradients of the model's parameters; return with the next parameters in it."""
        if self._left:
            raise RunError(f"{self.name} has left the run: it cannot take another step")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._program.notify(self._gradient())
        self._drive()
        return loss

    def leave(self, *, fetch: bool = False) -> None:
        """No data left: nobody waits for this worker any more. `fetch`: the final parameters."""
        if self._left:
            return
        self._left = True
        # Beside the program, which stays where it waits.
        goodbye = self.kernel.spawn(self._goodbye(fetch), f"{self.name} leaves")
        while not goodbye.done and not self.stopped:
            self._run_kernel()
        self._hand_over()
        if not goodbye.done:
            raise self._run_over

    def tell_of_lost_state(self) -> None:
        """The servers' optimizer starts with an empty state."""
        if not self._left:
            self.notice(
                f"the optimizer of {self.name} has taken steps before: their traces "
                "(momentum and the like) stay behind, the servers' optimizer begins afresh"
            )

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        self._load(parameters)
        self._iteration = iteration
        started = self.now
        drawn_s = self._run_time(self.worker, iteration, started) if self._run_time else 0.0
        self.kernel.stop()  # back to the user, once this walker waits
        gradient: Sequence[Block | None] = await self.kernel.wait()
        await self.stretch(started, drawn_s)
        return gradient

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: EndsIt
    ) -> Sequence[Block | None] | Stopped:
        self._load(parameters)
        self._iteration, self._stopped = iteration, None
        started = self.now
        drawn_s = self._run_time(self.worker, iteration, started) if self._run_time else 0.0
        self._must_stop = self.looked_for(ends_it)
        self.kernel.stop()  # back to the user, once this walker waits
        gradient: Sequence[Block | None] = await self.kernel.wait()
        stopped = self._stopped
        if stopped is None and drawn_s:
            stopped = await self.stretch_until(started, drawn_s, ends_it)
        return stopped or gradient

    @contextlib.contextmanager
    def abortable(self) -> Iterator[Computation]:
        """See `outpace.abortable`."""
        if self._left:
            yield Computation()
            return
        with self._boundaries.stopping_at(self._must_stop) as computation:
            yield computation
        if computation.stopped:
            self._stopped = Stopped(computation.share)

    def _drive(self) -> None:
        """Until the user's code has to go on."""
        self._run_kernel()
        if self._program.done or self.stopped:
            self._left = True
            self._hand_over()
            raise self._run_over

    @property
    def _run_over(self) -> RunOver:
        if self.stopped is not None and self.stopped.early:
            return RunOver("outpace: the run was ended early")
        why = self.stopped.reason if self.stopped else "stop.iterations is reached"
        print(f"outpace: {why}; the script of {self.name} ends here", file=sys.stderr)  # noqa: T201
        return RunOver(0)

    def _run_kernel(self) -> None:
        try:
            self.kernel.run()
        except WalkerError as error:
            raise error.error from None

    async def _goodbye(self, fetch: bool) -> None:
        self.send_leave()
        if fetch:
            for caller in self.callers:
                caller.send(Fetch(final=True))
            blocks = list(self._blocks)
            for _ in self.callers:
                shard, block = await self.snapshots.get()
                blocks[shard] = block
            self._load(blocks)
        self.kernel.stop()

    def _hand_over(self) -> None:
        """The training is over for this worker. Worker 0's buffers are part of the result."""
        if self.worker == 0 and (extras := self.extras).numel():
            self.coordinator.send(Extras(head_of(extras)), extras)
        self.flush()
        self.coordinator.send(Left())

    # -- gradients and parameters ------------------------------------------------------

    def _gradient(self) -> Sequence[Block | None]:
        """One block for each server; the settings of this step are noted."""
        abstain = [None] * len(self._slices)
        if self._stopped is not None:
            return abstain
        optimizer = self._optimizer
        unused = [n for n, p in enumerate(self._parameters) if p.grad is None]
        self._step_settings = StepSettings(self._current_settings(), unused)
        self.recorder.gradient_computed(self.worker)
        found_inf = getattr(optimizer, "found_inf", None)  # what GradScaler hands over
        if found_inf is not None and float(found_inf) > 0:
            return abstain
        flat = self._flat([gradient_of(p) for p in self._parameters])
        scale = getattr(optimizer, "grad_scale", None)
        if scale is not None:  # as GradScaler.unscale_ does
            flat.mul_(float(scale.double().reciprocal().float()))
        if all_finite(flat):
            return [flat[part] for part in self._slices]
        what = f"the gradient of {self.name} is not finite in its iteration {self._iteration}"
        if not self._refuse:
            raise DivergenceError(f"{what}; try a smaller learning rate")
        self._refusals.note(
            f"a gradient of {self.name} is not finite: it is not pushed",
            first=f" (iteration {self._iteration})",
        )
        return abstain

    def _flat(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A copy of them as one vector, where messages come from."""
        if self._device is None:
            tensors = [tensor.cpu() for tensor in tensors]
        return torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu()

    def _load(self, blocks: Sequence[Block]) -> None:
        """Put the pulled parameters into the model."""
        self._blocks = list(blocks)
        if self._device is not None and self._device.type != "cpu":  # few large copies
            there = [tensor.to(self._device) for block in blocks for tensor in parts(whole(block))]
        else:
            there = [tensor for block in blocks for tensor in parts(block)]
        with torch.no_grad():
            torch._foreach_copy_(self._parameters, like(self._parameters, there))


def end_script(worker: AttachedWorker, error: Exception | None) -> None:
    """The script is over: leave the run, or say what went wrong. Once."""
    if worker.closed:
        return
    try:
        if error is None:
            worker.leave()
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


def _at_exit(worker: AttachedWorker) -> None:
    error = None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)  # unhandled
    end_script(worker, error if isinstance(error, Exception) else None)
