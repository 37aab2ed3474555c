"""A user's model and optimizer as a worker sees them: flat vectors, and what is beside them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch

from outpace.blocks.block import Block, parts, whole
from outpace.blocks.pieces import Pieces
from outpace.blocks.sums import Gradient, all_finite
from outpace.config.experiment import Experiment
from outpace.errors import DivergenceError
from outpace.optim.torch_optimizers import Groups, plain_settings
from outpace.real.net.sparse_log import SparseLog
from outpace.real.node.packing import packed, unpacked
from outpace.real.node.parameters import dtype_name, gradient_of, like, shared


class ScriptModel:
    """What is exchanged are the parameters in the optimizer's groups.

    Raises ConfigError if they cannot be.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        self.groups = [list(group["params"]) for group in optimizer.param_groups]
        self.names, self.parameters = shared(model, self.groups)
        self.dtype = self.parameters[0].dtype
        devices = {p.device for p in self.parameters}
        self.device = devices.pop() if len(devices) == 1 else None  # None: several
        self.exchanged_there = False  # on that device, rather than on the CPU?
        step = type(optimizer).step
        # Its hooks run around the step that the script takes, not around this one too.
        self._own_step = getattr(step, "__wrapped__", step) if hasattr(step, "hooked") else step

    @property
    def layers(self) -> list[int]:
        """See `Trainee`."""
        return [p.numel() for p in self.parameters if p.numel()]

    @property
    def layout(self) -> str:
        """See `Trainee`; JSON, which `ScriptTraining` reads."""
        dtype = dtype_name(self.dtype)
        return json.dumps(
            {
                "parameters": [
                    (name, list(p.shape), dtype)
                    for name, p in zip(self.names, self.parameters, strict=True)
                ],
                "extras": self._beside_layout(),
                "aliases": self._aliases(),
                "optimizer": type(self.optimizer).__name__,
                "groups": [len(group) for group in self.groups],
            }
        )

    def beside(self) -> dict[str, torch.Tensor]:
        """What the model has beside the shared parameters: buffers, frozen parameters."""
        shared = {id(p) for p in self.parameters}
        named = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        saved = self.model.state_dict(keep_vars=True)
        return {
            name: tensor
            for name, tensor in named.items()
            if id(tensor) not in shared and name in saved
        }

    def _beside_layout(self) -> list[tuple[str, list[int], str]]:
        return [(n, list(t.shape), dtype_name(t.dtype)) for n, t in self.beside().items()]

    def _aliases(self) -> list[tuple[str, str]]:
        """Further names of tensors that the model has more than once, with their first ones."""
        named = dict(zip(self.names, self.parameters, strict=True)) | self.beside()
        first = {id(tensor): name for name, tensor in named.items()}
        return [
            (name, first[id(tensor)])
            for name, tensor in self.model.state_dict(keep_vars=True).items()
            if name not in named and id(tensor) in first
        ]

    @property
    def extras(self) -> torch.Tensor:
        """The bytes of what is beside them."""
        return packed(list(self.beside().values()))

    def take_extras(self, data: torch.Tensor) -> None:
        """Have these instead."""
        beside = self.beside()
        with torch.no_grad():
            for name, value in unpacked(self._beside_layout(), data).items():
                beside[name].copy_(value)

    def settings(self) -> list[dict[str, Any]]:
        """The optimizer's, of each group. Raises ConfigError if they cannot travel."""
        known = self.optimizer.defaults
        return [plain_settings(group, known) for group in self.optimizer.param_groups]

    def flat(self) -> torch.Tensor:
        """A copy of the parameters as one vector, where messages come from."""
        return self.as_one([p.detach() for p in self.parameters])

    def as_one(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """A copy of tensors like the parameters, as one vector."""
        if self.device is None:
            tensors = [tensor.cpu() for tensor in tensors]
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        return flat if self.exchanged_there else flat.cpu()

    def load(self, blocks: Sequence[Block]) -> None:
        """Put these into the model."""
        if self.device is not None and self.device.type != "cpu":  # few large copies
            there = [tensor.to(self.device) for block in blocks for tensor in parts(whole(block))]
        else:
            there = [tensor for block in blocks for tensor in parts(block)]
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, like(self.parameters, there))

    def take_step(self) -> None:
        """The optimizer's own, along the gradients in the model."""
        for name in ("grad_scale", "found_inf"):  # GradScaler's, heeded by `ScriptGradients`
            if hasattr(self.optimizer, name):
                setattr(self.optimizer, name, None)
        with torch.no_grad():
            self._own_step(self.optimizer)

    def places(self, part: slice) -> Groups:
        """For each parameter group, (number, low, high) of its parameters in this part of the
        vector."""
        found = {}
        place = 0
        for number, parameter in enumerate(self.parameters):
            low, high = max(place, part.start), min(place + parameter.numel(), part.stop)
            if low < high:
                found[id(parameter)] = number, low - part.start, high - part.start
            place += parameter.numel()
        return [[found[id(p)] for p in group if id(p) in found] for group in self.groups]

    @property
    def unused(self) -> list[int]:
        """The numbers of those without a gradient."""
        return [number for number, p in enumerate(self.parameters) if p.grad is None]


class OfScript:
    """What a `Trainee` says of what it trains, if that is a script's model."""

    _script: ScriptModel

    @property
    def layers(self) -> list[int]:
        return self._script.layers

    @property
    def layout(self) -> str:
        return self._script.layout

    @property
    def extras(self) -> torch.Tensor:
        return self._script.extras

    def take_extras(self, data: torch.Tensor) -> None:
        self._script.take_extras(data)


class ScriptGradients:
    """Of one worker; those that cannot be used are refused, or end the run.

    name: of the worker. say: tell a person.
    """

    def __init__(
        self, script: ScriptModel, experiment: Experiment, name: str, say: Callable[[str], None]
    ) -> None:
        self._script, self._name = script, name
        self._refuse = experiment.non_finite == "refuse"
        self._log = SparseLog(say)

    def now(self, iteration: int) -> torch.Tensor | None:
        """The gradient in the model, as one vector; None: it is skipped, or refused.

        Raises DivergenceError if it is not finite and that is not to be refused.
        """
        if self._is_skipped:
            return None
        script = self._script
        flat = script.as_one([gradient_of(p) for p in script.parameters])
        scale = self._scale
        return (
            flat if self._may_be_used(flat if scale == 1 else flat.mul_(scale), iteration) else None
        )

    def in_place(self, iteration: int, *, look: bool = True) -> Pieces | None:
        """The same where it is, unless it must be scaled. look: is it finite?"""
        if self._is_skipped:
            return None
        tensors = [gradient_of(p).reshape(-1) for p in self._script.parameters]
        if self._script.device is None:
            tensors = [tensor.cpu() for tensor in tensors]
        if self._scale != 1:
            tensors = list(torch._foreach_mul(tensors, self._scale))
        pieces = Pieces(tensors)
        return pieces if not look or self._may_be_used(pieces, iteration) else None

    @property
    def _is_skipped(self) -> bool:
        found_inf = getattr(self._script.optimizer, "found_inf", None)  # what GradScaler hands over
        return found_inf is not None and float(found_inf) > 0

    @property
    def _scale(self) -> float:
        """To multiply it by, as GradScaler.unscale_ does."""
        scale = getattr(self._script.optimizer, "grad_scale", None)
        return 1.0 if scale is None else float(scale.double().reciprocal().float())

    def _may_be_used(self, gradient: Gradient, iteration: int) -> bool:
        if all_finite(gradient):
            return True
        self.refuse(iteration)
        return False

    def refuse(self, iteration: int) -> None:
        """Say that it is not finite. Raises DivergenceError if that is not to be refused."""
        if not all_finite(Pieces([p.detach().reshape(-1) for p in self._script.parameters])):
            raise DivergenceError(  # no gradient will ever be
                f"the parameters of {self._name} stopped being finite before its iteration "
                f"{iteration}; try a smaller learning rate"
            )
        what = f"the gradient of {self._name} is not finite in its iteration {iteration}"
        if not self._refuse:
            raise DivergenceError(f"{what}; try a smaller learning rate")
        self._log.note(
            f"a gradient of {self._name} is not finite: it is not pushed",
            first=f" (iteration {iteration})",
        )
