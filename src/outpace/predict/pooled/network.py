"""The network from features to the law of the next iteration: three recurrent layers with heads.

All workers, all nodes and all clusters share weights. A node receives the mean of its workers'
states, and the cluster receives the mean of its nodes' states, so the numbering of workers and
nodes has no effect.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn

from outpace.predict.pooled.law import Factor, Law
from outpace.predict.pooled.tracks import (
    CLUSTER_FEATURES,
    NODE_FEATURES,
    REAL,
    WORKER_FEATURES,
    Levels,
    Tracks,
)

_WORKER, _NODE, _CLUSTER = 24, 32, 32  # sizes of the states
_WORKER_HEAD, _NODE_HEAD = 24, 32
_COMMON_WEIGHTS: Final = (0.0, -1.0, -4.0)  # initial logits of the factor's three normals
_OTHERS: Final = (math.log(1.35), math.log(2.2))  # initial levels of regimes not yet seen
_OTHER_SPREAD: Final = 0.25
_REGIME_WEIGHTS: Final = (4.0, 1.0, 0.0, 0.0)  # stay, back to normal, others
_RARELY: Final = -4.0  # initial logit of a delay
_SMALLEST: Final = 1e-3  # spread of log times: measurements are not more precise


class PooledNetwork(nn.Module):
    """The network, with about 20,000 weights.

    Args:
        noise: Usual change of log times from one iteration to the next.
        delay: Usual delay of a straggler, in log time.
        common: Usual change of the reference.

    The arguments are initial scales of the heads.
    """

    def __init__(self, noise: float, delay: float, common: float) -> None:
        super().__init__()
        self.noise = noise
        self.delay = delay
        self.common = common
        self._sizes = torch.tensor((0.3 * noise, common, 3.0 * common), dtype=REAL)
        self.worker = nn.GRU(WORKER_FEATURES, _WORKER, dtype=REAL)
        self.node = nn.GRU(_WORKER + NODE_FEATURES, _NODE, dtype=REAL)
        self.cluster = nn.GRU(_NODE + CLUSTER_FEATURES, _CLUSTER, dtype=REAL)
        self.worker_in = nn.Linear(_WORKER, _WORKER_HEAD, dtype=REAL)
        self.worker_above = nn.Linear(_NODE + _CLUSTER, _WORKER_HEAD, bias=False, dtype=REAL)
        self.worker_out = nn.Linear(_WORKER_HEAD, 6, dtype=REAL)
        self.node_in = nn.Linear(_NODE + _CLUSTER, _NODE_HEAD, dtype=REAL)
        self.node_out = nn.Linear(
            _NODE_HEAD, 4 + len(_REGIME_WEIGHTS) + 2 * len(_OTHERS), dtype=REAL
        )
        self.cluster_out = nn.Linear(_CLUSTER, 2 + 3 * len(_COMMON_WEIGHTS), dtype=REAL)
        with torch.no_grad():
            for head in (self.worker_out, self.node_out, self.cluster_out):
                head.weight.mul_(0.2)
                head.bias.zero_()

    @torch.no_grad()
    def begin_within(self, largest: float) -> None:
        """Let no regime of a node begin further from normal than the largest change of a log time.

        If all workers of a node were cut off, a fit learns only that the node took longer. If the
        usual regimes make that improbable, a regime explains it better the further it is from
        normal. A regime that begins further away than any change can stay there with a high
        probability: on cluster ii of `bdsgd-rules` at 5.34 s, where nodes change by 0.04 at most,
        each became twice as slow with a probability of 0.003.
        """
        share = min(1.0, max(largest, self.noise) / _OTHERS[-1])
        others = len(_OTHERS)
        self.node_out.bias[-2 * others : -others] = (share - 1.0) * torch.tensor(
            _OTHERS, dtype=REAL
        )
        self.node_out.bias[-others:] = math.log(share)

    def begin(self, runs: int, nodes: int, width: int) -> Levels:
        return Levels(
            torch.zeros(runs, nodes, width, _WORKER, dtype=REAL),
            torch.zeros(runs, nodes, _NODE, dtype=REAL),
            torch.zeros(runs, _CLUSTER, dtype=REAL),
        )

    def forward(self, features: Levels, present: Tensor, state: Levels) -> Levels:
        """Return the states after each of T iterations, from the state before the first of them.

        Features and states have T in front of every shape. present: the places with a worker, shape
        (runs, J, W).
        """
        mine = present[..., None].to(REAL)
        share = mine / mine.sum(-2, keepdim=True).clamp(min=1.0)
        worker = _through(self.worker, features.worker, state.worker)
        pooled = (worker * share).sum(-2)
        node = _through(self.node, torch.cat((pooled, features.node), -1), state.node)
        there = present.any(-1)[..., None].to(REAL)
        all_nodes = (node * (there / there.sum(-2, keepdim=True).clamp(min=1.0))).sum(-2)
        into = torch.cat((all_nodes, features.cluster), -1)
        return Levels(worker, node, _through(self.cluster, into, state.cluster))

    def law(self, state: Levels, tracks: Tracks) -> tuple[Law, Factor]:
        """Return the law of the next iteration, relative to the last iteration's reference.

        The law has one shift, where the common factor is 1; the common factor is returned with it.
        """
        noise = self.noise
        above = torch.cat(
            (state.node, state.cluster[..., None, :].expand(*state.node.shape[:-1], -1)), -1
        )
        mine = self.worker_in(state.worker) + self.worker_above(above)[..., None, :]
        move, trust, width, delay, delay_width, straggle = self.worker_out(mine.tanh()).unbind(-1)
        offset = tracks.offset * torch.sigmoid(trust + 1.0) + noise * move
        delay = self.delay * torch.nn.functional.softplus(delay + 0.5)

        out = self.node_out(torch.tanh(self.node_in(above)))
        others = len(_OTHERS)
        blend, drift, usual, home = out[..., :4].unbind(-1)
        weights = out[..., 4 : 6 + others] + out.new_tensor(_REGIME_WEIGHTS)
        far, wide = out[..., 6 + others :].split(others, -1)
        blend = torch.sigmoid(blend)
        stay = tracks.smooth + blend * (tracks.level - tracks.smooth) + noise * drift
        normal = torch.sigmoid(usual - 1.0) * tracks.low + noise * home
        level = torch.cat(
            (torch.stack((stay, normal), -1), normal[..., None] + out.new_tensor(_OTHERS) + far), -1
        )
        spread = torch.cat(
            (
                (noise * width.exp())[..., None].expand(*width.shape, 2),
                (_OTHER_SPREAD * wide.exp())[..., None, :].expand(*width.shape, others),
            ),
            -1,
        )
        out = self.cluster_out(state.cluster)
        steps, back = out[..., :2].unbind(-1)
        centre = torch.sigmoid(back) * (tracks.usual - tracks.reference) + noise * steps
        likely, where, wide = out[..., 2:].chunk(3, -1)
        sizes = self._sizes * wide.exp() + _SMALLEST
        around = torch.cat((torch.zeros_like(where[..., :1]), where[..., 1:]), -1)
        law = Law(
            centre[..., None],
            torch.zeros_like(centre[..., None]),
            level,
            weights.log_softmax(-1),
            offset,
            spread.clamp(min=_SMALLEST),
            delay,
            self.delay * delay_width.exp() * 0.5 + _SMALLEST,
            straggle + _RARELY,
        )
        weight = likely + out.new_tensor(_COMMON_WEIGHTS)
        return law, Factor(weight, around * self._sizes, sizes)


def _through(layer: nn.GRU, sequence: Tensor, state: Tensor) -> Tensor:
    """Run a recurrent layer over a sequence of shape (T, ..., features), for each middle index."""
    times, *cells, _ = sequence.shape
    flat = sequence.reshape(times, -1, sequence.shape[-1])
    out, _ = layer(flat, state.reshape(1, -1, state.shape[-1]))
    found: Tensor = out.reshape(times, *cells, -1)
    return found
