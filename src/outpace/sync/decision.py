"""The decision of a policy about a pull, with its reason.

The reason is a code and two numbers, because a run makes millions of decisions.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

ASK_AGAIN: Final = -1  # release clock of a pull that is judged again when the view has changed
ANYBODY: Final = -1


class Reason(enum.IntEnum):
    """Why a pull was answered or held. Traces contain the numbers: never reuse one.

    Attributes:
        UNBOUNDED: no bound applies to this pull.
        WITHIN_BOUND: lead < bound.
        BEYOND_BOUND: lead ≥ bound.
        SPARED: beyond the bound, but the random draw let it pass.
        CONDITION: a condition of the user was true.
        NO_CONDITION: a condition of the user was false.
    """

    UNBOUNDED = 0
    WITHIN_BOUND = 1
    BEYOND_BOUND = 2
    SPARED = 3
    CONDITION = 4
    NO_CONDITION = 5


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Says whether to answer a pull now or at a later clock.

    Attributes:
        release_clock: None: answer now. A number: answer when the shard's clock reaches it.
            ASK_AGAIN: judge the pull again whenever `watch` has pushed or left.
        reason: why; traces contain it.
        lead: iterations by which the puller is ahead of the shard's clock, i − V.
        bound: the bound with which the lead was compared; a policy with a bound must give it.
        watch: a worker, or ANYBODY.
    """

    release_clock: int | None
    reason: Reason
    lead: int
    bound: int = 0
    watch: int = ANYBODY
