"""The interface of rules that change a strategy: observation, setting, order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, TypeAlias

from outpace.support.units import Time, seconds
from outpace.sync.decision import Reason

RuleState: TypeAlias = Mapping[str, Any]  # plain values, lists and dicts, for a checkpoint


class Family(IntEnum):
    """The parameter that a rule changes. Messages have its number, which must keep its meaning."""

    BOUND = 0  # iterations by which a worker may lead the slowest: 0 is BSP, None is ASP
    QUORUM = 1  # workers whose gradients an iteration waits for; None is ASP
    PERIOD = 2  # steps from one average of all workers to the next, without servers


class Setting(NamedTuple):
    """A strategy of a family.

    Attributes:
        grace: of Family.QUORUM: an iteration ends so many ns after a quarter of the workers have
            pushed it, also without the quorum (see `early`); 0: it waits for the quorum.
    """

    family: Family
    value: int | None
    grace: Time = 0

    def __str__(self) -> str:
        if self.value is None:
            return "asp"
        if self.family is Family.PERIOD:
            return f"every {self.value}"
        if self.family is Family.QUORUM:
            grace = f", grace {1000 * seconds(self.grace):.3g} ms" if self.grace else ""
            return f"quorum {self.value}{grace}"
        return f"ssp {self.value}" if self.value else "bsp"


def early(workers: int) -> int:
    """Return the number of workers after whose pushes the grace of a setting begins: a quarter."""
    return math.ceil(workers / 4)


class Observation(NamedTuple):
    """One iteration of one worker, which has just ended.

    If its computation was stopped, the times are what it would have taken, as far as known.
    """

    now_s: float  # seconds since the start of the run
    worker: int
    iteration: int
    busy_s: float  # from its start to the answers, without the time that servers held the pull
    compute_s: float  # of it, until the gradient was there
    noise: float = 0.0  # estimates of E|g - G|² for a gradient g with mean G, summed over the run
    signal: float = 0.0  # estimates of |G|², likewise; both 0 if they are not measured


class Order(NamedTuple):
    """Says to go on with a setting, and why.

    figures: two numbers that belong to the reason, see `words`.
    """

    to: Setting
    reason: Reason
    figures: tuple[float, float]


class Rule(Protocol):
    """Decides which setting a run with servers follows.

    A run begins with the `setting` that the rule has then.
    """

    @property
    def setting(self) -> Setting:
        """The setting that was ordered last."""

    def observe(self, seen: Observation) -> Order | None:
        """Take an observation; return an order if another setting is to be followed from now on.

        Observations of one worker come in the order of its iterations. In a real run they come
        up to a fraction of a second late.
        """

    def state(self) -> RuleState:
        """Return all that another rule with the same options needs to go on from here."""

    def restore(self, state: RuleState, places: Sequence[int | None]) -> None:
        """Go on from a state; only before the first observation.

        The rule may have been made for another number of workers than the one of the state. Its
        setting is then one that these workers can follow: all of them if it was all, else at most
        as many as before.

        Args:
            places: for each worker of this rule, its number in the rule of the state; None: it was
                not there.
        """


def words(reason: Reason, figures: tuple[float, float]) -> str:
    """Return the reason of a switch as a sentence without a full stop."""
    before, after = figures
    if reason is Reason.SHARE_DONE:
        return f"every worker has done the {after:.0f} iterations that were to be synchronous"
    if reason is Reason.MORE_PROGRESS:
        return (
            f"predicted progress is worth {after:.4g} gradients per second, "
            f"with the setting before {before:.4g}"
        )
    if reason is Reason.SLOW_NOT_AWAITED:
        return (
            "workers that become slow are waited for no longer than the grace; predicted progress "
            f"is worth {after:.4g} gradients per second, with the setting before {before:.4g}"
        )
    if reason is Reason.OTHER_WORKERS:
        return f"the run goes on with {after:.0f} workers, before it had {before:.0f}"
    if reason is Reason.LOSS_FELL:
        return f"the loss is {after:.4g}, at the start it was {before:.4g}"
    if reason is Reason.LOSS_STAYS:
        return (
            f"the loss is {after:.4g}, at the start it was {before:.4g}: the period would not "
            "become shorter, so it is reduced by the factor"
        )
    return reason.name.lower().replace("_", " ")
