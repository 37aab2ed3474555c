"""Derives random numbers from the coin of a pull.

A policy has no randomness, so that a run can be replayed from its messages. Numbers are
derived from the pull's coin by the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA
2014), whose outputs for successive inputs pass statistical tests of independence.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from outpace.sync.messages import Pull

_MASK: Final = 2**64 - 1
_FEW: Final = 64  # size above which samples are not cached
_GOLDEN: Final = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio, made odd


def coin_of(pull: Pull, server: int) -> float:
    """Return a number in [0, 1) for this pull at this server."""
    return (_mixed(_bits(pull.coin) + _GOLDEN * (server + 1)) >> 11) * 2.0**-53


def sample_of(pull: Pull, size: int, workers: int) -> Sequence[int]:
    """Return a sample of `size` workers, without the puller; all others if there are fewer."""
    drawn = _kept if size <= _FEW else _sample
    return drawn(_bits(pull.coin), pull.worker, size, workers)


def _sample(state: int, puller: int, size: int, workers: int) -> Sequence[int]:
    moved: dict[int, int] = {}  # the start of a shuffle of all other workers
    chosen = []
    others, digits = workers - 1, 0
    for place in range(min(size, others)):
        left = others - place
        if digits < left << 20:  # one random number is enough for several draws
            state += _GOLDEN
            digits = _mixed(state)
        digits, drawn = divmod(digits, left)
        drawn += place
        picked = moved.get(drawn, drawn)
        moved[drawn] = moved.get(place, place)
        chosen.append(picked if picked < puller else picked + 1)
    return tuple(chosen)


_kept = lru_cache(maxsize=1 << 12)(_sample)  # a held pull is judged several times


def _bits(coin: float) -> int:
    return int(coin * 2**53)


def _mixed(number: int) -> int:
    number &= _MASK
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB & _MASK
    return number ^ (number >> 31)
