"""A gated recurrent unit (`torch.nn.GRU`) over a short sequence, in few calls.

With states of a few dozen numbers a call costs more than its arithmetic. torch makes about
twenty calls for each step of the sequence and forty for its derivative; here it is six and four,
because everything that does not depend on the step before is computed for all steps at once.

With input x and state h, and the columns of the weights in the order r, z, n:

    r = σ(x U_r + a_r + h W_r + b_r)          h' = n + z (h - n)
    z = σ(x U_z + a_z + h W_z + b_z)
    n = tanh(x U_n + a_n + r (h W_n + b_n))
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def recurrent(
    inputs: Tensor, state: Tensor, into: Tensor, onward: Tensor, into_bias: Tensor, bias: Tensor
) -> Tensor:
    """Return the states after each step, shape (T, B, H).

    inputs: shape (T, B, F). state: before the first step, shape (B, H); it receives no gradient.
    The others are the parameters of `torch.nn.GRU`, in its order.
    """
    entering = torch.nn.functional.linear(inputs, into, into_bias)
    states: Tensor = _Recurrent.apply(entering, state, onward, bias)  # type: ignore[no-untyped-call]
    return states


class _Recurrent(torch.autograd.Function):
    """The part that depends on the step before."""

    @staticmethod
    def forward(ctx: Any, entering: Tensor, state: Tensor, onward: Tensor, bias: Tensor) -> Tensor:
        steps, cells, _ = entering.shape
        size = state.shape[-1]
        states = entering.new_empty(steps + 1, cells, size)
        states[0] = state
        gates = entering.new_empty(steps, cells, 2 * size)  # r and z
        inner = entering.new_empty(steps, cells, size)  # h W_n + b_n
        new = entering.new_empty(steps, cells, size)  # n
        weights = onward.t()
        for step in range(steps):
            before = torch.addmm(bias, states[step], weights)
            inner[step] = before[:, 2 * size :]
            gate = torch.add(entering[step, :, : 2 * size], before[:, : 2 * size], out=gates[step])
            reset, keep = gate.sigmoid_().chunk(2, dim=1)
            torch.addcmul(entering[step, :, 2 * size :], reset, inner[step], out=new[step]).tanh_()
            torch.lerp(new[step], states[step], keep, out=states[step + 1])
        ctx.save_for_backward(states, gates, inner, new, onward)
        return states[1:]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        states, gates, inner, new, onward = ctx.saved_tensors
        steps, cells, size = new.shape
        reset, keep = gates.chunk(2, dim=2)
        # Derivatives of h' by the arguments of tanh and σ, and by the three parts of h W + b.
        by_new = (1.0 - keep) * (1.0 - new.square())
        by_keep = (states[:-1] - new) * keep * (1.0 - keep)
        by_reset = by_new * inner * reset * (1.0 - reset)
        parts = torch.stack((by_reset, by_keep, by_new * reset), dim=2)
        of_states = gradients[0].clone()
        of_parts = torch.empty_like(parts)
        for step in range(steps - 1, -1, -1):
            torch.mul(of_states[step][:, None], parts[step], out=of_parts[step])
            if step:
                carried = torch.addmm(
                    of_states[step - 1], of_parts[step].view(cells, 3 * size), onward
                )
                torch.addcmul(carried, of_states[step], keep[step], out=of_states[step - 1])
        flat = of_parts.view(steps * cells, 3 * size)
        of_onward = flat.t() @ states[:-1].reshape(steps * cells, size)
        of_bias = flat.sum(0)
        of_parts[:, :, 2] = of_states * by_new
        return of_parts.view(steps, cells, 3 * size), None, of_onward, of_bias
