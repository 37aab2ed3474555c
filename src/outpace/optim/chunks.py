"""Steps of torch's optimizers on a large block, one chunk at a time.

torch's step of Adam goes through its tensors about ten times. On a block of 25 MB each pass reads
and writes main memory. On a chunk the passes stay in a cache, and so do the mean before the step,
the check for numbers that are not finite, and the copy for readers: main memory is read and written
once. The arithmetic is torch's, element by element, so the bits are those of a step on the whole
block. torch's fused steps, which go through main memory once, are taken on the whole block; so are
all steps if another arithmetic than that of `optim.arithmetic` is installed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import torch

from outpace.blocks.block import Pieces
from outpace.blocks.recutting import Walk
from outpace.blocks.sums import Gradient
from outpace.optim.arithmetic import TAKES, is_torchs
from outpace.optim.step import mean_of

# Elements of a chunk. Parameters, gradient, what Adam remembers and a result between take 2.6 MB,
# twice a cache of the second level. The fixed costs of smaller chunks weigh more.
CHUNK: Final = 1 << 17
LEAST: Final = CHUNK  # no block of so many elements goes in chunks
# A parameter is cut at multiples of so many elements: torch may round the last few of a tensor,
# which do not fill a vector register, in another way.
_ALIGNED: Final = 64

Parameters: TypeAlias = Mapping[int, tuple[torch.nn.Parameter, slice]]


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
        """Take a step along gradient / divisor; see `TorchSteps.each`.

        unused: the numbers of parameters that stay as they are.
        """
        used = {n: each for n, each in self._parameters.items() if n not in unused}
        if not self._chunks or not self._fits_chunks(used):
            self._at_once(mean_of(gradient, divisor), used)
            yield slice(0, self._block.numel())
            return
        states = {number: self._optimizer.state[variable] for number, (variable, _) in used.items()}
        for state in states.values():
            if "step" in state:
                state["step"] += 1
        walk = Walk(gradient)
        for place, cuts in self._chunks:
            found = walk.next(place.stop - place.start)
            part = mean_of(found[0] if len(found) == 1 else Pieces(found), divisor)
            for cut in cuts:
                if cut.number in used:
                    self._take(cut, part, place.start, states[cut.number])
            yield place

    def _take(
        self, cut: _Cut, gradient: torch.Tensor, start: int, state: Mapping[str, Any]
    ) -> None:
        """Take the step on a cut; its gradient is in one that begins at a place of the block."""
        variable, _ = self._parameters[cut.number]
        TAKES[type(self._optimizer)](
            self._group_of[variable],
            float(state.get("step", 0)),
            self._block[cut.place],
            gradient[cut.place.start - start : cut.place.stop - start],
            {
                name: value[cut.own]
                for name, value in state.items()
                if name != "step" and isinstance(value, torch.Tensor)
            },
            self._scratch[: cut.place.stop - cut.place.start],
        )

    def _at_once(self, gradient: torch.Tensor, used: Parameters) -> None:
        for variable, place in used.values():
            variable.grad = gradient[place]
        self._optimizer.step()
        for variable, _ in used.values():
            variable.grad = None  # its memory may be used for something else

    def _fits_chunks(self, used: Parameters) -> bool:
        """True if the step on these parameters can be taken in chunks.

        The optimizer must have made what it remembers of each of them.
        """
        kind: Any = type(self._optimizer)
        for variable, _ in used.values():
            group, known = self._group_of[variable], self._optimizer.state.get(variable, {})
            if group.get("fused") or not all(torch.is_tensor(known.get(n)) for n in _names(group)):
                return False
        return is_torchs(kind, self._block.dtype)


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


def _names(group: Mapping[str, Any]) -> Sequence[str]:
    """Return what SGD, or Adam, remembers of a parameter."""
    if "betas" not in group:
        return ("momentum_buffer",) if group["momentum"] != 0 else ()
    names = "step", "exp_avg", "exp_avg_sq"
    return (*names, "max_exp_avg_sq") if group["amsgrad"] else names
