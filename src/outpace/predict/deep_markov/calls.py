"""Parts of the networks with their derivatives in few calls of torch.

With states of a few dozen numbers a call costs more than its arithmetic. torch would make several
calls for each iteration of a window, and twice as many for the derivative; here everything that
does not depend on the iteration before is computed for all iterations at once.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


def backwards(new: Tensor, gate: Tensor) -> Tensor:
    """Return h, shape (L, B, H), with h_L = new_L and h_t = h_{t+1} + gate_t (new_t - h_{t+1})."""
    read: Tensor = _Backwards.apply(new, gate)  # type: ignore[no-untyped-call]
    return read


def states(free: Tensor, start: Tensor, into: Tensor, bias: Tensor, back: Tensor) -> Tensor:
    """Return z, shape (L, B, D), with z_t = free_t + tanh(z_{t-1} into + bias) back.

    free: shape (L, B, D); start: z_0, (D,); into: (D, H); bias: (H,); back: (H, D).
    """
    z: Tensor = _States.apply(free, start, into, bias, back)  # type: ignore[no-untyped-call]
    return z


def log_likelihood(x: Tensor, cut: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
    """Return the sum over N of ln N(x; mean, std²), or of ln P(more than x) where `cut` is 1.

    All have shape (L, B, N). Neither x nor cut receives a gradient.
    """
    likely: Tensor = _LogLikelihood.apply(x, cut, mean, log_std)  # type: ignore[no-untyped-call]
    return likely


class _Backwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, new: Tensor, gate: Tensor) -> Tensor:
        h = torch.empty_like(new)
        h[-1] = new[-1]
        each, news, gates = h.unbind(), new.unbind(), gate.unbind()
        for t in range(len(new) - 2, -1, -1):
            torch.lerp(each[t + 1], news[t], gates[t], out=each[t])
        ctx.save_for_backward(new, gate, h)
        return h

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        new, gate, h = ctx.saved_tensors
        of_h = gradients[0].clone()
        each, keep = of_h.unbind(), (1.0 - gate).unbind()
        for t in range(len(new) - 1):
            torch.addcmul(each[t + 1], each[t], keep[t], out=each[t + 1])
        of_new, of_gate = of_h * gate, torch.zeros_like(gate)
        of_new[-1] = of_h[-1]
        torch.mul(of_h[:-1], new[:-1] - h[1:], out=of_gate[:-1])
        return of_new, of_gate


class _States(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, free: Tensor, start: Tensor, into: Tensor, bias: Tensor, back: Tensor
    ) -> Tensor:
        z = torch.empty_like(free)
        inner = free.new_empty(*free.shape[:2], len(bias))
        before = start.expand(free.shape[1], -1)
        for one, own, given in zip(z.unbind(), inner.unbind(), free.unbind(), strict=True):
            torch.addmm(bias, before, into, out=own).tanh_()
            before = torch.addmm(given, own, back, out=one)
        ctx.save_for_backward(z, inner, start, into, back)
        return z

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        z, inner, start, into, back = ctx.saved_tensors
        of_z, of_inner = gradients[0].clone(), torch.empty_like(inner)
        each, parts, slopes = of_z.unbind(), of_inner.unbind(), (1.0 - inner.square()).unbind()
        onward, away = into.t(), back.t()
        for t in range(len(z) - 1, -1, -1):
            torch.mm(each[t], away, out=parts[t]).mul_(slopes[t])
            if t:
                each[t - 1].addmm_(parts[t], onward)
        flat = of_inner[1:].flatten(0, 1)
        of_first = of_inner[0].sum(0)
        of_into = z[:-1].flatten(0, 1).t() @ flat + torch.outer(start, of_first)
        of_back = inner.flatten(0, 1).t() @ of_z.flatten(0, 1)
        return of_z, into @ of_first, of_into, flat.sum(0) + of_first, of_back


class _LogLikelihood(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cut: Tensor, mean: Tensor, log_std: Tensor) -> Tensor:
        scale = (-log_std).exp()
        z = (x - mean).mul_(scale)
        likely = z.square().mul_(-0.5).sub_(log_std + _HALF_LOG_TAU)
        fall = z.clone()  # minus the derivative by z
        where = cut.bool()
        if where.any():
            beyond = z[where]
            tail = torch.special.log_ndtr(-beyond)
            likely[where] = tail
            fall[where] = beyond.square().mul_(-0.5).sub_(tail + _HALF_LOG_TAU).exp_()
        ctx.save_for_backward(z, fall, cut, scale)
        return likely.sum(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        z, fall, cut, scale = ctx.saved_tensors
        up = gradients[0][..., None]
        of_log_std = (z * fall).add_(cut).sub_(1.0).mul_(up)
        return None, None, (scale * fall).mul_(up), of_log_std
