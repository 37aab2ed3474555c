"""Computes gradients of several workers at once: `torch.func.vmap` over stacked parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate, pairwise
from typing import TypeAlias

import torch
from torch.backends import cudnn
from torch.func import functional_call, replace_all_batch_norm_modules_, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from outpace.tasks.task import Task

Wanted: TypeAlias = tuple[Sequence[torch.Tensor], int, int]  # blocks, worker, iteration
SamplesOf: TypeAlias = Callable[[int, int], torch.Tensor]  # worker, iteration -> indices
Named: TypeAlias = Mapping[str, torch.Tensor]


class Stacked:
    """Computes several gradients of `SupervisedWorkload.gradient` at once, up to rounding.

    Stacked matrix products add numbers in another order: in float32 a gradient differs by about
    1e-6 of its norm. Models that draw random numbers (dropout) draw different numbers.
    """

    def __init__(self, task: Task, samples_of: SamplesOf, device: str | None) -> None:
        """Stack the model's parameters. Raises ValueError if its batches cannot be stacked."""
        if not isinstance(task.train, tuple):
            raise ValueError("its training data must be a tuple of tensors, not a Dataset")
        self._samples_of, self._loss = samples_of, task.loss
        model = copy.deepcopy(task.model)
        replace_all_batch_norm_modules_(model)  # BatchNorm's averages are not used
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        # Otherwise torch rounds the inputs of a convolution on a GPU to TF32, with 10 bits.
        self._is_exact = device is not None
        self._device = torch.device(device) if device else next(iter(named.values())).device
        self._model = model.to(self._device)
        self._data = task.train[0].to(self._device), task.train[1].to(self._device)
        self._names, self._shapes = list(named), [p.shape for p in named.values()]
        bounds = accumulate((p.numel() for p in named.values()), initial=0)
        self._places = [slice(low, high) for low, high in pairwise(bounds)]
        # By default vmap refuses models with dropout.
        self._losses = vmap(self._loss_of, randomness="different")

    def gradients(self, wanted: Sequence[Wanted]) -> list[tuple[float, tuple[torch.Tensor, ...]]]:
        """Return (loss, gradient in blocks) for each entry; the gradients share memory."""
        blocks = [parameters for parameters, _, _ in wanted]
        indices = [self._samples_of(worker, iteration) for _, worker, iteration in wanted]
        places = torch.stack(indices).to(self._device)
        inputs, targets = self._data[0][places], self._data[1][places]
        equal = all(a is b for each in blocks[1:] for a, b in zip(each, blocks[0], strict=True))
        rows = (
            _joined(blocks[0]).expand(len(wanted), -1)
            if equal
            else _joined([torch.stack(column) for column in zip(*blocks, strict=True)])
        )
        exact = cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
        # Only this implementation of attention can be batched; vmap repeats the others.
        with (
            torch.enable_grad(),
            sdpa_kernel(SDPBackend.MATH),
            exact if self._is_exact else nullcontext(),
        ):
            named = self._named(rows.to(self._device))
            losses = self._losses(named, inputs, targets)
            # Each loss depends on its own row alone, so each row of the gradient of the summed
            # losses is the gradient of one loss. This is faster than vmap over single gradients.
            gradients = torch.autograd.grad(
                losses.sum(), list(named.values()), materialize_grads=True
            )
        flat = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)
        lengths = [block.numel() for block in blocks[0]]
        columns = torch.split(flat.cpu(), lengths, dim=1)
        rows_by_block = zip(*(column.unbind() for column in columns), strict=True)
        return list(zip(losses.tolist(), rows_by_block, strict=True))

    def _named(self, rows: torch.Tensor) -> Named:
        """Return n copies of the model's parameters, as views of flat vectors of shape (n, P)."""
        return {
            name: rows[:, place].reshape(len(rows), *shape).detach().requires_grad_()
            for name, place, shape in zip(self._names, self._places, self._shapes, strict=True)
        }

    def _loss_of(self, named: Named, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self._loss(functional_call(self._model, dict(named), (inputs,)), targets)


def _joined(blocks: Sequence[torch.Tensor]) -> torch.Tensor:
    """Join blocks along the last dimension."""
    return torch.cat(list(blocks), dim=-1) if len(blocks) > 1 else blocks[0]
