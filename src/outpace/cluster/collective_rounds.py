"""The rounds of messages in averages, and in the collectives of torch.distributed.

There are N members with m bytes each, the latency is L, and the bandwidth is B. If a member has a
chunk for each other member, m is the size of all its chunks together. If there is a root, it is the
first member.

- ring (Patarasu and Yuan, 2009; HPSGD, section 2): 2(N−1) rounds, in each of which every worker
  sends a chunk of m/N bytes to the next, so 2(N−1)·(L + m/(N·B)) in all.
- tree: ⌈log2 N⌉ rounds in which m bytes go towards the first worker, pair by pair, and as many
  rounds back.
- exchange: two workers send each other m bytes at once, L + m/B.

The other formulas, except for gather and scatter, are from Thakur, Rabenseifner and Gropp (2005),
section 4:

- broadcast and reduce: a binomial tree, ⌈log2 N⌉·(L + m/B).
- all-gather: a ring, (N−1)·(L + m/B).
- reduce-scatter: a ring of chunks, (N−1)·(L + m/(N·B)).
- all-to-all: N−1 exchanges of chunks, (N−1)·(L + m/(N·B)).
- gather and scatter: one message after the other to or from the root, as Gloo does it,
  (N−1)·(L + m/B), with m the bytes of one member.
- barrier: ⌈log2 N⌉·L, by dissemination (Hensgen, Finkel and Manber 1988).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

Round: TypeAlias = list[tuple[int, int]]  # (sender, receiver)
Pattern: TypeAlias = Literal[
    "ring",
    "tree",
    "exchange",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
    "barrier",
]


def _broadcast(members: Sequence[int]) -> list[Round]:
    rounds, reached = [], 1
    while reached < len(members):
        new = members[reached : 2 * reached]
        rounds.append([(members[n], receiver) for n, receiver in enumerate(new)])
        reached *= 2
    return rounds


def _reduce(members: Sequence[int]) -> list[Round]:
    return [[(to, sender) for sender, to in once] for once in reversed(_broadcast(members))]


def _ring(members: Sequence[int]) -> list[Round]:
    count = len(members)
    once = [(sender, members[(n + 1) % count]) for n, sender in enumerate(members)]
    return [once] * (count - 1)


def _tree(members: Sequence[int]) -> list[Round]:
    count, stride, up = len(members), 1, []
    while stride < count:
        up.append([(members[n + stride], members[n]) for n in range(0, count - stride, 2 * stride)])
        stride *= 2
    return up + [[(to, sender) for sender, to in once] for once in reversed(up)]


def _all_to_all(members: Sequence[int]) -> list[Round]:
    count = len(members)
    return [
        [(sender, members[(n + step) % count]) for n, sender in enumerate(members)]
        for step in range(1, count)
    ]


def _barrier(members: Sequence[int]) -> list[Round]:
    count, step, rounds = len(members), 1, []
    while step < count:
        rounds.append([(one, members[(n + step) % count]) for n, one in enumerate(members)])
        step *= 2
    return rounds


_ROUNDS: Final[dict[str, Callable[[Sequence[int]], list[Round]]]] = {
    "ring": lambda members: _ring(members) * 2,
    "tree": _tree,
    "exchange": lambda members: [[(members[0], members[1]), (members[1], members[0])]],
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_gather": _ring,
    "reduce_scatter": _ring,
    "all_to_all": _all_to_all,
    "gather": lambda members: [[(other, members[0])] for other in members[1:]],
    "scatter": lambda members: [[(members[0], other)] for other in members[1:]],
    "barrier": _barrier,
}
_IN_CHUNKS: Final = ("ring", "reduce_scatter", "all_to_all")


def rounds_of(pattern: Pattern, members: Sequence[int]) -> tuple[list[Round], int]:
    """Return the rounds, and the number of chunks of the bytes; a message carries one chunk."""
    return _ROUNDS[pattern](members), len(members) if pattern in _IN_CHUNKS else 1
