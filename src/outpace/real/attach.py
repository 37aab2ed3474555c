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
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

from outpace.config import Experiment
from outpace.errors import ConfigError, RunError
from outpace.kernel import WalkerError
from outpace.messages import Block, StepSettings
from outpace.real.bodies import DTYPES, Extras, Failed, Fetch, Initialize
from outpace.real.member import Link
from outpace.real.training import packed, unpacked
from outpace.real.wire import head_of
from outpace.real.worker import Worker, is_finite
from outpace.torch_optimizers import plain_settings
from outpace.units import seconds


class RunOver(SystemExit):
    """The run has ended while this script still wanted to train: it ends here, without error."""


def attached(
    link: Link, number: int, experiment: Experiment, model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
) -> AttachedWorker:  # fmt: skip
    """Join the run; returns when the first iteration may start."""
    worker = AttachedWorker(link, number, experiment, model, optimizer)
    _take_over(optimizer, worker)
    atexit.register(end_script, worker, None)  # if whoever runs the script does not
    worker.start()
    return worker


class AttachedWorker(Worker):
    """The user's model and optimizer; `step` is called instead of the optimizer's."""

    def __init__(
        self, link: Link, number: int, experiment: Experiment, model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
    ) -> None:  # fmt: skip
        self._model, self._optimizer = model, optimizer
        self._groups = [list(group["params"]) for group in optimizer.param_groups]
        self._names, self._parameters = _shared(model, self._groups)
        self._flat = torch.cat(
            [p.detach().cpu().reshape(-1) for p in self._parameters]
        )  # what is on the servers, as last pulled
        super().__init__(link, number, experiment.seed)
        self._limit = experiment.stop.iterations
        self._refuse = experiment.non_finite == "refuse"
        law = experiment.compute
        self._run_time = None if law is None else law.run_time(experiment.seed, experiment.workers)
        self._slices = [slice(0, self.size)]
        self._step_settings: StepSettings | None = None
        self._left = False
        self._program = self.kernel.spawn(self.work(), self.name)

    # -- what is trained ----------------------------------------------------------

    @property
    def size(self) -> int:
        return self._flat.numel()

    @property
    def layout(self) -> str:
        dtype = _dtype_name(self._flat)
        return json.dumps(
            {
                "parameters": [
                    (name, list(p.shape), dtype)
                    for name, p in zip(self._names, self._parameters, strict=True)
                ],
                "extras": self._beside_layout(),
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
        return [(n, list(t.shape), _dtype_name(t)) for n, t in self._beside().items()]

    @property
    def extras(self) -> torch.Tensor:
        return packed(list(self._beside().values()))

    def take_extras(self, data: torch.Tensor) -> None:
        with torch.no_grad():
            for name, value in unpacked(self._beside_layout(), data).items():
                self._beside()[name].copy_(value)

    def cut(self, slices: Sequence[slice]) -> list[Block]:
        self._slices = list(slices)
        return [self._flat[part].clone() for part in slices]

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
        return [plain_settings(group) for group in self._optimizer.param_groups]

    def settings(self) -> StepSettings | None:
        return self._step_settings

    def must_stop(self, iteration: int) -> bool:
        return self._limit is not None and iteration >= self._limit

    # -- the user's side -------------------------------------------------------------

    def start(self) -> None:
        """Join the run; returns when the first iteration may start."""
        self._drive()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Push the gradients of the model's parameters; return with the next parameters in it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._left:
            raise RunError(f"{self.name} has left the run: it cannot take another step")
        self._program.notify(self._gradient())
        self._drive()
        return loss

    def leave(self, *, fetch: bool = False) -> None:
        """No data left: nobody waits for this worker any more."""
        if not self._left:
            self._left = True
            self._say_goodbye(fetch)

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        self._load(parameters)
        started = self.now
        drawn_s = self._run_time(self.worker, iteration, started) if self._run_time else 0.0
        self.kernel.stop()  # back to the user, once this walker waits
        gradient: Sequence[Block | None] = await self.kernel.wait()
        self.kernel.catch_up()
        rest_s = drawn_s - seconds(self.now - started)
        if rest_s > 0:
            await self.kernel.sleep(rest_s)
        return gradient

    def _drive(self) -> None:
        try:
            self.kernel.run()
        except WalkerError as error:
            raise error.error from None
        if self._program.done or self.stopped:
            self._left = True
            self.finish()
            raise RunOver(0)

    def _say_goodbye(self, fetch: bool) -> None:
        """Beside the program, which stays where it waits."""
        goodbye = self.kernel.spawn(self._goodbye(fetch), f"{self.name} leaves")
        try:
            while not goodbye.done and not self.stopped:
                self.kernel.run()
        except WalkerError as error:
            raise error.error from None
        self.finish()

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
        if self.worker == 0 and (extras := self.extras).numel():
            self.coordinator.send(Extras(head_of(extras)), extras)
        self.kernel.stop()

    # -- gradients and parameters ------------------------------------------------------

    def _gradient(self) -> Sequence[Block | None]:
        """One block for each server; the settings of this step are noted."""
        optimizer = self._optimizer
        unused = [n for n, p in enumerate(self._parameters) if p.grad is None]
        self._step_settings = StepSettings(self._current_settings(), unused)
        abstain = [None] * len(self._slices)
        found_inf = getattr(optimizer, "found_inf", None)  # what GradScaler hands over
        if found_inf is not None and float(found_inf) > 0:
            self.recorder.gradient_computed(self.worker, None)
            return abstain
        flat = torch.cat([_flat_gradient(p, self._flat.dtype) for p in self._parameters])
        scale = getattr(optimizer, "grad_scale", None)
        if scale is not None:  # as GradScaler.unscale_ does
            flat.mul_(float(scale.double().reciprocal().float()))
        self.recorder.gradient_computed(self.worker, None)
        if is_finite(None, [flat]):
            return [flat[part] for part in self._slices]
        what = f"a gradient of {self.name} is not finite"
        if not self._refuse:
            raise RunError(f"{what}; try a smaller learning rate")
        self.notice(f"{what}: it is not pushed")
        return abstain

    def _load(self, blocks: Sequence[Block]) -> None:
        """Put the pulled parameters into the model."""
        self._blocks = list(blocks)
        for part, block in zip(self._slices, blocks, strict=True):
            assert isinstance(block, torch.Tensor)
            self._flat[part] = block
        pieces = torch.split(self._flat, [p.numel() for p in self._parameters])
        with torch.no_grad():
            for parameter, piece in zip(self._parameters, pieces, strict=True):
                parameter.copy_(piece.view(parameter.shape))


def _shared(
    model: torch.nn.Module, groups: Sequence[Sequence[torch.Tensor]]
) -> tuple[list[str], list[torch.Tensor]]:
    """The optimizer's parameters, in the order in which the model names them."""
    owned = {id(p): p for group in groups for p in group}
    named = [(name, p) for name, p in model.named_parameters() if id(p) in owned]
    known = {id(p) for _, p in named}
    strange = [p for key, p in owned.items() if key not in known]
    if strange:
        raise ConfigError(
            f"the optimizer has {len(strange)} parameters that the model does not have"
        )
    kinds = {str(p.dtype) for _, p in named}
    if len(kinds) != 1 or named[0][1].dtype not in DTYPES.values():
        raise ConfigError(
            f"the optimizer's parameters must share one floating-point dtype, not {sorted(kinds)}"
        )
    return [name for name, _ in named], [p for _, p in named]


def _flat_gradient(parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros(parameter.numel(), dtype=dtype)
    if gradient.is_sparse:
        raise ConfigError("sparse gradients cannot be shared: make the embedding dense")
    return gradient.detach().to("cpu", dtype).reshape(-1)


def _dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _take_over(optimizer: torch.optim.Optimizer, worker: AttachedWorker) -> None:
    """Have `optimizer.step` call the worker's, and everything else stay as it is.

    A class of its own rather than an attribute: schedulers and hooks wrap what the class
    has. One that was made before has wrapped the old step already, and is told.
    """
    kind = type(optimizer)
    wrapped = optimizer.__dict__.pop("step", None) is not None

    def step(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        if wrapped:
            self._opt_called = True  # what the scheduler's wrapper would have noted
        return worker.step(closure)

    members = {
        "step": torch.optim.Optimizer.profile_hook_step(step),
        # GradScaler then calls step() always, and says whether to skip it.
        "_step_supports_amp_scaling": True,
    }
    optimizer.__class__ = type(kind.__name__, (kind,), members)
    if wrapped:
        optimizer.step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]


def end_script(worker: AttachedWorker, error: Exception | None) -> None:
    """The script is over: leave the run, or say what went wrong. Once."""
    if worker.closed:
        return
    try:
        if error is None:
            worker.leave()
        else:
            worker.coordinator.send(Failed(type(error).__name__, str(error)))
    finally:
        worker.close()
