"""A user's model and optimizer as a worker sees them: flat parameters and model buffers."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from operator import is_
from typing import Any, Final

import torch
from torch.nn.parameter import is_lazy

from outpace.blocks.block import Block, parts, whole
from outpace.blocks.naming import aliases_in, layout_of
from outpace.blocks.packing import dtype_name, packed, packed_by_name, unpacked_by_name
from outpace.engine.scripts.layout import places_of, shared_parameters, values_in
from outpace.engine.scripts.optimizer_state import cut, flattened, joined
from outpace.errors import ConfigError
from outpace.optim.step import OptimizerState
from outpace.optim.torch_optimizers import Groups, State, plain_settings
from outpace.support.place import HERE
from outpace.support.words import shortened

# prefix, in the saved state, of a parameter outside of the model
_VALUE: Final = "value of the parameter"
_MOST_GROUPS: Final = 100  # largest number of groups of an optimizer in the records of a run


class ScriptModel:
    """A model and its optimizer. Exchanged are the parameters in the optimizer's groups that
    require a gradient when this is made.

    If DistributedDataParallel averages the gradients and the script's own optimizer takes the
    steps, the run only records the parameters. Then everything works that works under torchrun:
    parameters of several dtypes, complex parameters (two real numbers each), and parameters outside
    of the model, such as parameters of a loss.

    Args:
        is_exchanged: False if the run only records the parameters.

    Attributes:
        dtype: dtype of the flat parameters, which can represent all parameters.
        layers: number of real elements of each parameter.

    Raises:
        ConfigError: if the parameters cannot be exchanged.
    """

    def __init__(
        self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, is_exchanged: bool = True
    ) -> None:
        self.model, self.optimizer, self._is_exchanged = model, optimizer, is_exchanged
        _require_values(model)
        self.groups = [list(group["params"]) for group in optimizer.param_groups]
        owned = {id(p): p for group in self.groups for p in group}
        if is_exchanged:
            self.names, self.parameters = shared_parameters(model, list(owned.values()))
        else:
            named = [(n, p) for n, p in model.named_parameters() if id(p) in owned and p.numel()]
            self.names, self.parameters = [n for n, _ in named], [p for _, p in named]
        inside = {id(p) for p in model.parameters()}
        self._outside = [p for p in owned.values() if id(p) not in inside]
        shared = {id(p) for p in self.parameters}
        self._shapes = _shapes(model)
        self._frozen = [
            p
            for group in self.groups
            for p in group
            # a parameter without elements may require a gradient
            if id(p) not in shared and not p.requires_grad
        ]
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if is_exchanged and not bool(parameter.detach().isfinite().all()):
                raise ConfigError(
                    f"the parameter {name} is not finite before the first step: initialize the "
                    "model, or check the file it was loaded from"
                )
        values = self._values()
        self.dtype = reduce(torch.promote_types, (value.dtype for value in values))
        self.layers = [value.numel() for value in values]
        self._sizes = [p.numel() for p in self.parameters]
        devices = {p.device for p in self.parameters}
        self._gpus = [device for device in devices if device.type == "cuda"]
        # None: they are on several devices
        self.device = devices.pop() if len(devices) == 1 else None
        self.exchanged_there = False  # True: on `device`; False: on the CPU
        step = type(optimizer).step
        # Hooks run around the step that the script calls, and must not run around this step as
        # well.
        self._own_step = getattr(step, "__wrapped__", step) if hasattr(step, "hooked") else step

    def await_gpus(self) -> None:
        """Wait until GPUs have finished the script's queued work, so that its time is known."""
        for device in self._gpus:
            torch.cuda.synchronize(device)

    def _values(self) -> list[torch.Tensor]:
        """Return real views of the parameters."""
        values = (p.detach() for p in self.parameters)
        return [torch.view_as_real(v) if v.is_complex() else v for v in values]

    def require_as_begun(self, iteration: int) -> None:
        """Raise ConfigError if the script no longer trains the parameters it had at the beginning.

        Args:
            iteration: the iteration whose step the script takes.
        """
        for name, parameter, size in zip(self.names, self.parameters, self._sizes, strict=True):
            if parameter.dtype is not self.dtype or parameter.numel() != size:
                raise ConfigError(
                    f"the parameter {name} has {parameter.numel()} elements of "
                    f"{dtype_name(parameter.dtype)}, but the run shares the {size} of "
                    f"{dtype_name(self.dtype)} that it had {when_shared()}: convert and resize the "
                    "model before"
                )
        groups = [group["params"] for group in self.optimizer.param_groups]
        if len(groups) != len(self.groups) or not all(
            len(now) == len(then) and all(map(is_, now, then))
            for now, then in zip(groups, self.groups, strict=True)
        ):
            raise ConfigError(
                "the optimizer's parameter groups have other parameters than "
                f"{when_shared()}, and the run takes steps for those: to leave parameters out, "
                "set their group's lr to 0 or their requires_grad to False"
            )
        for parameter in self._frozen:
            if parameter.requires_grad:
                name = next((n for n, p in self.model.named_parameters() if p is parameter), "?")
                raise ConfigError(
                    f"the parameter {name} requires a gradient in iteration {iteration} and "
                    f"required none {when_shared()}, so it is not shared between workers and would "
                    "not be trained: leave its requires_grad True until then, and set it to False "
                    "afterwards for as long as the parameter is to be frozen"
                )

    @property
    def layout(self) -> str:
        """See `Trainer`. `ScriptTraining` reads this JSON."""
        others: dict[str, Any] = self._buffer_layout()
        if not self._is_exchanged:
            named = zip(self.names, self.parameters, strict=True)
            others["complex"] = [name for name, p in named if p.is_complex()]
        return layout_of(
            zip(self.names, self._values(), strict=True),
            self._aliases(),
            optimizer=type(self.optimizer).__name__,
            groups=[len(group) for group in self.groups],
            **others,
        )

    def _buffers(self, *, unsaved: bool = False) -> dict[str, torch.Tensor]:
        """Return model buffers and parameters that are not exchanged, by name.

        Args:
            unsaved: True: also those that are not in the model's `state_dict`.
        """
        shared = {id(p) for p in self.parameters}
        named = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        chosen = named if unsaved else self.model.state_dict(keep_vars=True)
        return {
            name: tensor
            for name, tensor in named.items()
            if id(tensor) not in shared and name in chosen
        }

    def _buffer_layout(self) -> dict[str, Any]:
        saved = self._buffers()
        listed = [(n, list(t.shape), dtype_name(t.dtype)) for n, t in saved.items()]
        unsaved = [name for name in self._buffers(unsaved=True) if name not in saved]
        return {"buffers": listed, **({"unsaved": unsaved} if unsaved else {})}

    def _aliases(self) -> list[tuple[str, str]]:
        """Return the additional names of tensors with several names, each with the first name."""
        named = dict(zip(self.names, self.parameters, strict=True)) | self._buffers()
        return aliases_in(self.model.state_dict(keep_vars=True), named)

    def read_buffers(self, *, unsaved: bool = False) -> torch.Tensor:
        """Return the model buffers as bytes, in their present shapes; shape (bytes,), uint8.

        The result is empty if there are no buffers. It also has the names of the exchanged
        parameters if they have changed (pruning and parametrizations rename them).

        Args:
            unsaved: True: also buffers that are not in the model's `state_dict`, such as random
                features.
        """
        now = {id(p): name for name, p in self.model.named_parameters()}
        names = [now.get(id(p), name) for name, p in zip(self.names, self.parameters, strict=True)]
        buffers = self._buffers(unsaved=unsaved)
        if names == self.names and not buffers:
            return torch.empty(0, dtype=torch.uint8)
        return packed_by_name(buffers, () if names == self.names else names)

    def load_buffers(self, data: torch.Tensor) -> None:
        """Set the model buffers from the bytes that `read_buffers` returned.

        A buffer that now has another shape is replaced. Buffers that the model does not have now
        are left out, because the script will make them again.
        """
        if not data.numel():
            return
        buffers = self._buffers(unsaved=True)
        with torch.no_grad():
            for name, value in unpacked_by_name(data)[0].items():
                buffer = buffers.get(name)
                if buffer is None:
                    continue
                if buffer.shape == value.shape:
                    buffer.copy_(value)
                elif not isinstance(buffer, torch.nn.Parameter):
                    owner, _, key = name.rpartition(".")
                    module = self.model.get_submodule(owner)
                    module._buffers[key] = value.to(buffer.device, buffer.dtype)

    def tell_own_buffers(self) -> None:
        """Print once which buffers each worker keeps, because they have changed since attach.

        This is done only in worker 0, and only if there are other workers.
        """
        now = _shapes(self.model)
        found = [name for name in now if now[name] != self._shapes.get(name)]
        if found and HERE.number == 0 and HERE.workers > 1:
            self._shapes = now
            print(  # noqa: T201
                f"outpace: buffers of the model that appeared or changed shape after "
                f"outpace.attach ({shortened(found)}): each worker has its own from then on, and "
                "the run's result has worker-0's",
                file=sys.stderr,
            )

    def settings(self) -> list[dict[str, Any]]:
        """Return the settings of each group. Raises ConfigError if a setting cannot be sent."""
        known = self.optimizer.defaults
        return [plain_settings(group, known) for group in self.optimizer.param_groups]

    @property
    def momenta(self) -> list[Any]:
        """The momentum of each group that has one."""
        return [group.get("momentum", 0.0) for group in self.optimizer.param_groups]

    def used_settings(self) -> list[dict[str, Any]]:
        """Return the settings of each group that are plain data."""
        return [plain_settings(group, ()) for group in self.optimizer.param_groups]

    def used(self) -> dict[str, Any]:
        """Return the kind and the present settings of the optimizer, for the records of the run.

        `parameters` is the number of the model's parameters that are trained. `groups` has the
        settings of each parameter group that are plain data, and the number of its tensors as
        `tensors`. There are at most 100 groups; numbers that are not finite are given as text.
        """
        groups = [
            {**_finite(plain_settings(group, ())), "tensors": len(group["params"])}
            for group in self.optimizer.param_groups[:_MOST_GROUPS]
        ]
        return {
            "optimizer": type(self.optimizer).__name__,
            "parameters": sum(parameter.numel() for parameter in self.parameters),
            "groups": groups,
        }

    def flat(self) -> torch.Tensor:
        """Return a copy of the parameters as one vector, on the device that exchanges them."""
        tensors = self._values()
        if self.device is None:
            tensors = [tensor.cpu() for tensor in tensors]
        flat = torch.cat([tensor.reshape(-1).to(self.dtype) for tensor in tensors])
        return flat if self.exchanged_there else flat.cpu()

    def load(self, blocks: Sequence[Block]) -> None:
        """Copy parameters into the model."""
        if self.device is not None and self.device.type != "cpu":  # few large copies
            there = [tensor.to(self.device) for block in blocks for tensor in parts(whole(block))]
        else:
            there = [tensor for block in blocks for tensor in parts(block)]
        values = self._values()
        with torch.no_grad():
            torch._foreach_copy_(values, values_in(there, values))

    def take_step(self, gradients: Sequence[torch.Tensor], unused: Collection[int]) -> None:
        """Take a step of the script's optimizer.

        Args:
            gradients: one for each parameter, or one vector of all.
            unused: numbers of the parameters without a gradient.
        """
        if len(gradients) < len(self.parameters):
            gradients = torch.split(gradients[0], self.layers)
        for number, (parameter, gradient) in enumerate(
            zip(self.parameters, gradients, strict=True)
        ):
            used = number not in unused
            parameter.grad = gradient.view(parameter.shape).to(parameter.device) if used else None
        for name in ("grad_scale", "found_inf"):  # set by GradScaler, applied by `ScriptTrainer`
            if hasattr(self.optimizer, name):
                setattr(self.optimizer, name, None)
        with torch.no_grad():
            self._own_step(self.optimizer)

    def places(self, part: slice) -> Groups:
        """See `places_of`."""
        return places_of(self.members, self.layers, part)

    @property
    def members(self) -> list[list[int]]:
        """For each parameter group, the numbers of its parameters."""
        numbers = {id(p): number for number, p in enumerate(self.parameters)}
        return [[numbers[id(p)] for p in group if id(p) in numbers] for group in self.groups]

    def has_taken_steps(self) -> bool:
        """True if the optimizer has taken steps, or has loaded a state after some steps."""
        return any(
            float(state.get("step", 1)) > 0 and any(value is not None for value in state.values())
            for parameter in self.parameters
            if (state := self.optimizer.state.get(parameter))
        )

    def clear_state(self) -> None:
        """Remove the optimizer's state of the exchanged parameters."""
        for parameter in self.parameters:
            self.optimizer.state.pop(parameter, None)

    def state_within(self, part: slice) -> dict[int, State]:
        """Return a copy of the optimizer's state of the pieces of parameters in `part`.

        Raises:
            ConfigError: if the state is not element by element.
        """
        starts = list(accumulate(self.layers, initial=0))
        known = self.optimizer.state
        state = {
            number: flattened(known[parameter], parameter)
            for number, parameter in enumerate(self.parameters)
            if known.get(parameter)
        }
        return cut(state, self.places(part), part, starts)

    def joined_state(
        self, states: Sequence[OptimizerState], slices: Sequence[slice]
    ) -> dict[int, State]:
        """Return the state of whole parameters from the states within each of these slices."""
        return joined(states, [self.places(part) for part in slices], self.parameters)

    def whole_state(self) -> dict[int, State]:
        """Return the optimizer's state for `replace_state`, by number of the parameter."""
        known = self.optimizer.state
        of_model = {number: known.get(each) for number, each in enumerate(self.parameters)}
        found = {number: dict(values) for number, values in of_model.items() if values}
        for number, parameter in enumerate(self._outside, len(self.parameters)):
            found[number] = {_VALUE: parameter.detach(), **known.get(parameter, {})}
        return found

    def replace_state(self, state: Mapping[int, State]) -> None:
        """Replace the optimizer's state. state: for each number of a parameter, in its shape."""
        self.clear_state()
        known = self.optimizer.state
        parameters = [*self.parameters, *self._outside]
        for number, saved in state.items():
            parameter, values = parameters[number], dict(saved)
            if _VALUE in values:
                with torch.no_grad():
                    parameter.copy_(values.pop(_VALUE))
            known[parameter] = {
                name: value.to(parameter.device)
                if isinstance(value, torch.Tensor) and value.ndim
                else value
                for name, value in values.items()
            }
        for group in self.optimizer.param_groups:
            # the count of steps is on the device of the parameter
            if group.get("fused") or group.get("capturable"):
                for parameter in group["params"]:
                    if "step" in known.get(parameter, {}):
                        known[parameter]["step"] = known[parameter]["step"].to(parameter.device)

    def state_digest(self) -> str:
        """Return the SHA-256 of the optimizer's state; empty if it has not taken steps."""
        if not self.has_taken_steps():
            return ""
        digest = hashlib.sha256()
        for number, parameter in enumerate(self.parameters):
            for name, value in sorted(self.optimizer.state.get(parameter, {}).items()):
                if isinstance(value, torch.Tensor):
                    digest.update(f"{number} {name} {value.dtype} {value.shape}".encode())
                    digest.update(packed([value]).numpy().tobytes())
                elif isinstance(value, bool | int | float | str):
                    digest.update(f"{number} {name} {value!r}".encode())
        return digest.hexdigest()

    @property
    def unused(self) -> list[int]:
        """Numbers of the parameters without a gradient."""
        return [number for number, p in enumerate(self.parameters) if p.grad is None]


def when_shared() -> str:
    """Return when the run took over the script's model and optimizer."""
    if HERE.is_distributed and not HERE.has_attached:
        return "at the first forward pass of DistributedDataParallel"
    return "in outpace.attach"


def _require_values(model: torch.nn.Module) -> None:
    """Raise ConfigError if a parameter has no values yet."""
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise ConfigError(
                f"the parameter {name} has no values yet (a lazy module): call the model once "
                "before the training begins"
            )


def _shapes(model: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: buffer.shape for name, buffer in model.named_buffers()}


def with_batch_size(used: Mapping[str, Any], batch_size: int | None) -> dict[str, Any]:
    """Return what a script used, with the batch size of its DataLoader if that is known."""
    return {**used} if batch_size is None else {**used, "batch_size": batch_size}


def _finite(value: Any) -> Any:
    """Return plain data in the form that strict JSON can represent."""
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
