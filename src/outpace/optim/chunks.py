"""Steps of torch's optimizers on a large block, one chunk at a time.

torch's step of Adam goes through its tensors about ten times. On a block of 25 MB each pass reads
and writes main memory. On a chunk the passes stay in a cache, and so do the mean before the step,
the check for numbers that are not finite, and the copy for readers: main memory is read and written
once. The arithmetic is torch's, element by element, so the bits are those of a step on the whole
block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import torch
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from outpace.blocks.block import Pieces, StepSettings
from outpace.blocks.recutting import Walk
from outpace.blocks.sums import Gradient
from outpace.optim.arithmetic import TAKES, Take, is_torchs
from outpace.optim.step import mean_of

# Elements of a chunk. Parameters, gradient, what Adam remembers and a result between take 2.6 MB,
# twice a cache of the second level. The fixed costs of smaller chunks weigh more.
CHUNK: Final = 1 << 17
LEAST: Final = CHUNK  # no block of so many elements goes in chunks
# A parameter is cut at multiples of so many elements: torch's fused steps round the last few of a
# tensor, which do not fill a vector register, in another way.
_ALIGNED: Final = 64

Parameters: TypeAlias = Mapping[int, tuple[torch.nn.Parameter, slice]]
_T = TypeVar("_T")
_OfEach: TypeAlias = Mapping[int, _T]  # of each parameter, by its number


class InChunks(ABC):
    """A `Step` that can be taken in chunks."""

    def __call__(
        self,
        gradient: Gradient,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float,
    ) -> None:
        for _ in self.each(gradient, divisor, settings, progress, factor):
            pass

    @abstractmethod
    def each(
        self,
        gradient: Gradient,
        divisor: float,
        settings: StepSettings | None,
        progress: float,
        factor: float,
    ) -> Iterator[slice]:
        """Take the step; yield the place of each chunk as soon as its parameters have changed.

        The places follow each other from the start of the block to its end. The gradient of a
        place is not needed any more when the place is yielded. For the arguments see `Step`.
        """


class _Cut(NamedTuple):
    """The elements of one parameter that lie in one chunk."""

    number: int
    own: slice  # in the parameter
    place: slice  # in the block


class TorchStep:
    """Takes the steps of a torch optimizer on the parameters in a block.

    Args:
        optimizer: of these parameters.
        block: which the parameters are views of.
        parameters: by number, each with its place in the block, ascending.
        in_chunks: False to call `optimizer.step`, as hooks of a user's own optimizer need it.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        block: torch.Tensor,
        parameters: Parameters,
        *,
        in_chunks: bool = True,
    ) -> None:
        self._optimizer, self._block, self._parameters = optimizer, block, parameters
        self._chunks: list[tuple[slice, list[_Cut]]] = []
        # In half precision torch rounds the last few elements of a tensor differently.
        is_long = block.element_size() >= 4 and block.numel() > LEAST
        if in_chunks and is_long and type(optimizer) in TAKES:
            self._chunks = _chunks(parameters, block.numel())
            self._scratch = block.new_empty(CHUNK)
        self._group_of = {
            variable: group for group in optimizer.param_groups for variable in group["params"]
        }

    def each(
        self, gradient: Gradient, divisor: float, unused: Collection[int] = ()
    ) -> Iterator[slice]:
        """Take a step along gradient / divisor, see `InChunks.each`.

        unused: the numbers of parameters that stay as they are.
        """
        used = {n: each for n, each in self._parameters.items() if n not in unused}
        take = self._taking(used) if self._chunks and self._is_known(used) else None
        if take is None:
            self._at_once(mean_of(gradient, divisor), used)
            yield slice(0, self._block.numel())
            return
        walk = Walk(gradient)
        for place, cuts in self._chunks:
            found = walk.next(place.stop - place.start)
            part = mean_of(found[0] if len(found) == 1 else Pieces(found), divisor)
            take([cut for cut in cuts if cut.number in used], part, place.start)
            yield place
        for variable, _ in used.values():
            if "step" in self._optimizer.state[variable]:
                self._optimizer.state[variable]["step"] += 1

    def _taking(self, used: Parameters) -> Callable[[list[_Cut], torch.Tensor, int], None] | None:
        """Return what takes the step on cuts; their gradients are in one that begins at a place.

        None if this release of torch can only take it at once.
        """
        kind: Any = type(self._optimizer)
        states = self._optimizer.state
        kept = {number: states[variable] for number, (variable, _) in used.items()}
        groups = {number: self._group_of[variable] for number, (variable, _) in used.items()}
        if any(group.get("fused") for group in groups.values()) or not is_torchs(
            kind, self._block.dtype
        ):
            function = _FUNCTIONS.get(kind)
            return None if function is None else partial(self._take_torchs, function, groups, kept)
        steps = {number: float(state.get("step", 0)) + 1 for number, state in kept.items()}
        return partial(self._take_own, TAKES[kind], groups, kept, steps)

    def _take_own(
        self,
        take: Take,
        groups: _OfEach[dict[str, Any]],
        states: _OfEach[Mapping[str, Any]],
        steps: _OfEach[float],
        cuts: list[_Cut],
        gradient: torch.Tensor,
        start: int,
    ) -> None:
        for number, own, place in cuts:
            state = {
                name: value[own]
                for name, value in states[number].items()
                if name != "step" and isinstance(value, torch.Tensor)
            }
            take(
                groups[number],
                steps[number],
                self._block[place],
                gradient[place.start - start : place.stop - start],
                state,
                self._scratch[: place.stop - place.start],
            )

    def _take_torchs(
        self,
        function: Callable[..., None],
        groups: _OfEach[dict[str, Any]],
        states: _OfEach[Mapping[str, Any]],
        cuts: list[_Cut],
        gradient: torch.Tensor,
        start: int,
    ) -> None:
        for group in self._optimizer.param_groups:
            members = [cut for cut in cuts if groups[cut.number] is group]
            if members:
                function(
                    group,
                    [self._block[cut.place] for cut in members],
                    [gradient[cut.place.start - start : cut.place.stop - start] for cut in members],
                    [_state(states[cut.number], cut.own) for cut in members],
                )

    def _at_once(self, gradient: torch.Tensor, used: Parameters) -> None:
        for variable, place in used.values():
            variable.grad = gradient[place]
        self._optimizer.step()
        for variable, _ in used.values():
            variable.grad = None  # its memory may be used for something else

    def _is_known(self, used: Parameters) -> bool:
        """True if the optimizer has made what it remembers of each of these parameters."""
        for variable, _ in used.values():
            known = self._optimizer.state.get(variable, {})
            if not all(
                torch.is_tensor(known.get(name)) for name in _names(self._group_of[variable])
            ):
                return False
        return True


def _chunks(parameters: Parameters, size: int) -> list[tuple[slice, list[_Cut]]]:
    """Return the places of the chunks, which together are the block, with what is in them."""
    found: list[list[_Cut]] = []
    room = 0
    for number, (_, place) in parameters.items():
        low, start, end = place.start, 0, place.stop - place.start
        while start < end:
            if room < _ALIGNED:
                found.append([])
                room = CHUNK
            take = end - start if end - start <= room else room - room % _ALIGNED
            own = slice(start, start + take)
            found[-1].append(_Cut(number, own, slice(low + start, low + start + take)))
            start, room = start + take, room - take
    starts = [0, *(cuts[0].place.start for cuts in found[1:]), size]
    return [(slice(starts[n], starts[n + 1]), cuts) for n, cuts in enumerate(found)]


def _state(state: Mapping[str, Any], own: slice) -> dict[str, torch.Tensor]:
    """Return views of what belongs to elements, and copies of numbers, which a step changes."""
    return {
        name: value[own] if value.ndim else value.clone()
        for name, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def _names(group: Mapping[str, Any]) -> Sequence[str]:
    """Return what SGD, or Adam, remembers of a parameter."""
    if "betas" not in group:
        return ("momentum_buffer",) if group["momentum"] != 0 else ()
    names = "step", "exp_avg", "exp_avg_sq"
    return (*names, "max_exp_avg_sq") if group["amsgrad"] else names


def _take_sgd(
    group: Mapping[str, Any],
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    states: Sequence[Mapping[str, torch.Tensor]],
) -> None:
    buffers = [state["momentum_buffer"] if group["momentum"] != 0 else None for state in states]
    names = "weight_decay", "momentum", "lr", "dampening", "nesterov", "maximize", "fused"
    settings = {name: group[name] for name in names}
    sgd(parameters, gradients, buffers, foreach=False, **settings)


def _take_adam(
    group: Mapping[str, Any],
    parameters: list[torch.Tensor],
    gradients: list[torch.Tensor],
    states: Sequence[Mapping[str, torch.Tensor]],
) -> None:
    names = "amsgrad", "lr", "weight_decay", "eps", "maximize", "fused", "decoupled_weight_decay"
    settings = {name: group[name] for name in names}
    beta1, beta2 = group["betas"]
    adam(
        parameters,
        gradients,
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [state["max_exp_avg_sq"] for state in states] if group["amsgrad"] else [],
        [state["step"] for state in states],
        foreach=False,
        beta1=beta1,
        beta2=beta2,
        **settings,
    )


_FUNCTIONS: Final[dict[type, Callable[..., None]]] = {torch.optim.SGD: _take_sgd}
if "decoupled_weight_decay" in signature(adam).parameters:  # older releases have another for AdamW
    _FUNCTIONS.update({torch.optim.Adam: _take_adam, torch.optim.AdamW: _take_adam})
