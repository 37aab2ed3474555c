"""Finds out whether a user's optimizer works element by element, by a few steps.

Servers hold flat pieces of tensors, each server with an optimizer of its own. That equals an
optimizer of the whole tensors only if each element's step depends on nothing but the history of
that element and the settings. Factored moments (Adafactor), norms of tensors (LAMB, LARS), products
of matrices (Muon) and estimates over all parameters (Prodigy) are not like that. Their steps on
pieces are others, and nothing shows it in a run. So the optimizer takes some steps on small random
tensors, whole, and cut and flat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch

from outpace.errors import ConfigError
from outpace.support.user_code import brief

Make: TypeAlias = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]

# A matrix, the kernel of a convolution and a bias; then a matrix with sides above 128, below which
# some optimizers do not factor moments. It comes last, because matrix roots of it take long.
_SHAPES: Final = (((16, 12), (6, 4, 3, 3), (37,)), ((132, 130),))
_SIZES: Final = 4 * (1.0, 10.0, 0.1, 3.0)  # of the gradients, step by step: some steps are clipped
_TOLERANCE: Final = 1e-4  # of the largest change of an element
_LEAST_RATE: Final = 1e-3
_REMEDY: Final = (
    "servers hold flat pieces of the tensors: with sync.kind=ssgd or local-sgd, and without "
    "`optimizer`, a script's own optimizer takes its steps on whole tensors"
)


def require_elementwise(target: str, make: Make, groups: int) -> frozenset[str]:
    """Raise ConfigError unless the optimizer works element by element.

    Args:
        target: of the configuration.
        make: makes an optimizer of parameter groups.
        groups: number of groups that it expects.

    Returns:
        The names of the settings that the optimizer changes in its own step, such as counts.
    """
    with torch.random.fork_rng(devices=[]):
        written = frozenset[str]()
        for shapes in _SHAPES:
            whole = _compared(target, make, groups, shapes)
            if whole is None:
                break
            written |= whole.written()
    return written


def _compared(
    target: str, make: Make, groups: int, shapes: Sequence[tuple[int, ...]]
) -> _Trial | None:
    """Compare the steps on tensors of these shapes; None if they cannot be compared."""
    torch.manual_seed(0)
    values = [_uneven(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    gradients = [
        # Most of a gradient is the same in all steps, as estimates of a distance need it.
        [size * _uneven(value.flip(0) + 0.3 * torch.randn_like(value)) for value in values]
        for size in _SIZES
    ]
    cut = [_cut(value) for value in values]
    pieces = [_Trial(make, groups, [parts[side] for parts in cut]) for side in (0, 1)]
    name = type(pieces[0].optimizer).__name__
    if callable(getattr(pieces[0].optimizer, "eval", None)):
        raise ConfigError(
            f"optimizer.target: {target} makes a {name}, whose eval() and train() need the state "
            f"that servers have and the script does not; {_REMEDY}"
        )
    try:
        for step in gradients:
            for side, piece in enumerate(pieces):
                piece.step([_cut(gradient)[side] for gradient in step])
    except Exception as error:
        raise ConfigError(
            f"optimizer.target: {target} makes a {name}, whose step(), without a closure, raised "
            f"{brief(error)} on flat tensors; {_REMEDY}"
        ) from error
    wholes = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        try:
            whole = _Trial(make, groups, values)
            for step in gradients:
                whole.step(step)
        except Exception:  # it was written for flat tensors
            return None
        wholes.append(whole)
    whole, again = wholes
    if not all(map(torch.equal, whole.values(), again.values())):
        return None  # it draws random numbers, or diverges: no two runs are equal
    joined = [torch.cat(both) for both in zip(*(p.values() for p in pieces), strict=True)]
    for before, one, other in zip(values, whole.values(), joined, strict=True):
        most = float((one - before).abs().max())
        if not float((one.reshape(-1) - other).abs().max()) <= _TOLERANCE * most:
            raise _not_elementwise(
                target, name, "on a part of a tensor is not that part of the whole step"
            )
    if any(piece.settings() != whole.settings() for piece in pieces):
        raise _not_elementwise(target, name, "depends on all parameters together, not on each")
    return whole


def _not_elementwise(target: str, name: str, why: str) -> ConfigError:
    return ConfigError(
        f"optimizer.target: {target} makes a {name}, whose step {why}, so it would train another "
        f"model than without servers; {_REMEDY}"
    )


class _Trial:
    """An optimizer of some tensors. The first group has all of them, others have one element."""

    def __init__(self, make: Make, groups: int, values: Sequence[torch.Tensor]) -> None:
        self._tensors = [torch.nn.Parameter(value.clone()) for value in values]
        others = [{"params": [torch.nn.Parameter(torch.ones(1))]} for _ in range(groups - 1)]
        self.optimizer = make([{"params": self._tensors}, *others])
        for group in self.optimizer.param_groups:
            if isinstance(group.get("lr"), int | float) and abs(group["lr"]) < _LEAST_RATE:
                group["lr"] = _LEAST_RATE  # at the beginning of a warm-up no step would be seen
        self._before = self.settings()

    def step(self, gradients: Sequence[torch.Tensor]) -> None:
        for tensor, gradient in zip(self._tensors, gradients, strict=True):
            tensor.grad = gradient.clone()
        self.optimizer.step()

    def values(self) -> list[torch.Tensor]:
        return [tensor.detach() for tensor in self._tensors]

    def settings(self) -> dict[str, Any]:
        """Return the settings that are plain numbers."""
        group = self.optimizer.param_groups[0]
        return {key: value for key, value in group.items() if isinstance(value, bool | int | float)}

    def written(self) -> frozenset[str]:
        """Return the names of the settings that are new, or others than at the beginning."""
        return frozenset(dict(self.settings().items() - self._before.items()))


def _uneven(tensor: torch.Tensor) -> torch.Tensor:
    """Scale the elements, so that parts of the tensor have different norms."""
    scale = torch.linspace(0.1, 3, tensor.numel(), dtype=tensor.dtype)
    return tensor * scale.view(tensor.shape)


def _cut(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    flat = tensor.reshape(-1)
    place = len(flat) // 3
    return flat[:place], flat[place:]
