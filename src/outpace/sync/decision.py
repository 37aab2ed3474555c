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
    """Why a pull was answered or held. Traces contain the numbers: never reuse one."""

    UNBOUNDED = 0  # no bound applies to this pull
    WITHIN_BOUND = 1  # lead < bound
    BEYOND_BOUND = 2  # lead ≥ bound
    SPARED = 3  # beyond the bound, but the random draw let it pass
    CONDITION = 4  # a condition of the user was true
    NO_CONDITION = 5  # a condition of the user was false


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Says whether to answer a pull now (`release_clock` is None) or at a later clock.

    With ASK_AGAIN the pull is judged again whenever `watch` (a worker, or ANYBODY) has pushed
    or left.
    """

    release_clock: int | None
    reason: Reason
    lead: int  # iterations by which the puller is ahead of the shard's clock, i − V
    bound: int = 0  # the bound that the lead was compared with
    watch: int = ANYBODY
