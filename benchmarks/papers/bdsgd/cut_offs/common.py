"""Clusters whose iterations have a factor in common, and whose nodes are slow in bursts.

Ours, not the paper's. 64 workers on nodes of 1 to 16; log factors of the iterations are independent
normal draws. All random factors but the noise take few values, so that the law is exact.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from benchmarks.papers.bdsgd.cut_offs.clusters import BASE_S, NOISE, STRAGGLE, Array, Recorded
from benchmarks.papers.bdsgd.cut_offs.truth import Law

WORKERS: Final = 64
STRENGTHS: Final = (0.05, 0.15, 0.3, 0.6)  # standard deviation of the log factor
PER_NODE: Final = (1, 4, 8, 16)
_STEP: Final = 0.02  # of log factors
_FAR: Final = 4.0  # standard deviations to which they are listed
_SLOWER: Final = np.array([1.5, 2.0, 2.6])  # a node in a burst
_LATER: Final = np.array([1.0, 1.4, 1.8])  # a worker, by itself


def common_factor(iterations: int, seed: int, strength: float, per_node: int) -> Recorded:
    """Return a run. A node's burst begins every 20 to 60 iterations and lasts 4 to 12, on average.

    strength: of the common factor; per_node: workers.
    """
    node = np.arange(WORKERS) // per_node
    nodes = WORKERS // per_node
    habits = np.random.default_rng(per_node)
    leave = 1 / np.stack([habits.uniform(20, 60, nodes), habits.uniform(4, 12, nodes)])
    speed = habits.normal(0, 0.02, WORKERS)
    shared, shared_p = _factors(strength)
    late_p = np.array([1 - STRAGGLE, STRAGGLE / 2, STRAGGLE / 2])

    random = np.random.default_rng(seed)
    slow = np.zeros((iterations + 1, nodes), dtype=np.int64)
    slower = np.ones((iterations + 1, nodes))
    slow[0] = random.random(nodes) < leave[0] / leave.sum(axis=0)
    slower[0] = random.choice(_SLOWER, nodes)
    for t in range(iterations):
        turn = random.random(nodes) < leave[slow[t], np.arange(nodes)]
        slow[t + 1] = slow[t] ^ turn
        slower[t + 1] = np.where(turn & (slow[t] == 0), random.choice(_SLOWER, nodes), slower[t])
    regime = np.where(slow == 1, slower, 1.0)[1:, node]
    factor = np.exp(random.choice(shared, iterations, p=shared_p))[:, None]
    own = np.exp(random.normal(speed, NOISE, (iterations, WORKERS)))
    late = random.choice(_LATER, (iterations, WORKERS), p=late_p)
    offsets_logp = np.tile(np.log(late_p), (WORKERS, 1))

    def law(t: int) -> Law:
        was_slow = slow[t] == 1
        turn = leave[slow[t], np.arange(nodes)]
        p = np.empty((nodes, 2 + len(_SLOWER)))
        p[:, 0] = np.where(was_slow, turn, 1 - turn)
        p[:, 1] = np.where(was_slow, 1 - turn, 0)
        p[:, 2:] = np.where(was_slow, 0, turn)[:, None] / len(_SLOWER)
        regimes = np.column_stack([np.ones(nodes), slower[t], np.tile(_SLOWER, (nodes, 1))])
        with np.errstate(divide="ignore"):
            return Law(
                usual=np.log(BASE_S) + speed,
                deviation=NOISE,
                node=node,
                shared=shared,
                shared_logp=np.log(shared_p),
                regimes=np.log(regimes),
                regimes_logp=np.log(p),
                offsets=np.log(_LATER),
                offsets_logp=offsets_logp,
            )

    return Recorded(BASE_S * factor * regime * own * late, node, law)


def _factors(strength: float) -> tuple[Array, Array]:
    """Return the values of the log factor, and their probabilities."""
    count = int(np.ceil(_FAR * strength / _STEP))
    values = np.asarray(_STEP * np.arange(-count, count + 1), np.float64)
    density = np.exp(-0.5 * np.square(values / strength))
    return values, np.asarray(density / density.sum(), np.float64)
