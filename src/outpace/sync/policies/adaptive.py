"""A strategy that a rule changes while the run goes on."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Final, Literal, Self, TypeAlias, get_args

from outpace.support.checks import require
from outpace.support.units import seconds
from outpace.sync.adaptive.interface import Family, Rule, Setting, early
from outpace.sync.adaptive.progress import Progress
from outpace.sync.adaptive.sync_switch import SyncSwitch
from outpace.sync.decision import Decision
from outpace.sync.messages import Pull
from outpace.sync.policies.asp import Asp
from outpace.sync.policies.bsp import Bsp
from outpace.sync.policies.drop_stragglers import DropStragglers, Late, require_late
from outpace.sync.policies.partial_push import PartialPush
from outpace.sync.policies.ssp import Ssp
from outpace.sync.policy import Apply, Policy, Scale, ShardView, WirePolicy, bounded

RuleName: TypeAlias = Literal["progress", "sync-switch"]
_OPTIONS: Final = {  # of each rule
    "progress": ("window", "gain_percent", "noise_scale", "stale", "late"),
    "sync-switch": ("share", "after"),
}
SHARE: Final = 0.25  # of the training that is synchronous, unless it is given
_ONE_RULE: Final = "with adaptive one rule decides for all servers and the whole run"
_UNKNOWN: Final = "the rule of adaptive is told of whole iterations, which wait for all servers"


@dataclass(frozen=True, slots=True)
class Adaptive(WirePolicy):
    """Begins as ASP if it is `stale`, else as BSP; then servers follow what a rule orders.

    Args:
        rule: `progress` predicts from the workers' run times which quorum makes the most progress.
            `sync-switch` goes from BSP to ASP.
        window: of progress: iterations of each worker that it looks at.
        gain_percent: of progress: by how much another setting must be ahead.
        noise_scale: of progress: the gradient noise scale, in batches of all workers together;
            None: servers measure it.
        stale: of progress: it begins with ASP, whose gradients count over their staleness, and may
            return to it. For optimizers whose steps are proportional to the gradient; None: if the
            optimizer is one, see `settled`, else it begins with BSP.
        late: of progress: see `Quorum`; None: `stop` if it is known that workers can, else
            `finish`, see `settled`.
        share: of sync-switch: share of `stop.iterations` with BSP; a quarter if neither is given.
        after: of sync-switch: number of iterations with BSP; in place of `share`.

    Raises:
        ValueError: for values out of range, and for options of another rule.
    """

    rule: RuleName = "progress"
    window: int = 5
    gain_percent: float = 5.0
    noise_scale: float | None = None
    stale: bool | None = None
    late: Late | None = None
    share: float | None = None
    after: int | None = None
    kind: Literal["adaptive"] = "adaptive"
    scale: Scale = Scale.MEAN

    apply: ClassVar[Apply] = Apply.ON_ADVANCE
    everywhere: ClassVar[str] = _ONE_RULE
    excludes: ClassVar[Mapping[str, str]] = {
        "sync": _ONE_RULE,
        "sync_changes": _ONE_RULE,
        "conditions": _ONE_RULE,
        "barrier": _ONE_RULE,
        "pull": _UNKNOWN,
        "skip": _UNKNOWN,
    }

    def __post_init__(self) -> None:
        names = get_args(RuleName)
        require(self.rule in names, "rule", f"one of {', '.join(names)}", self.rule)
        usual = {each.name: each.default for each in fields(self)}
        for rule, options in _OPTIONS.items():
            for key in options if rule != self.rule else ():
                value = getattr(self, key)
                require(value == usual[key], key, f"left out: it belongs to rule: {rule}", value)
        require(3 <= self.window <= 10_000, "window", "from 3 to 10,000", self.window)
        gain, noise = self.gain_percent, self.noise_scale
        require(0 <= gain <= 1000, "gain_percent", "from 0 to 1000", gain)
        in_range = noise is None or 0 < noise <= 1e9
        require(in_range, "noise_scale", "above 0 and at most 1e9", noise)
        if self.late is not None:
            require_late(self.late)
        share, after = self.share, self.after
        require(share is None or 0 < share < 1, "share", "above 0 and below 1", share)
        require(after is None or 1 <= after < 2**31, "after", "from 1 to 2^31 − 1", after)
        if share is not None and after is not None:
            raise ValueError("share, after: give one of them")

    def settled(self, *, is_proportional: bool, can_stop: bool) -> Self:
        """Return this strategy with `stale` and `late` as the run allows, unless they are given.

        Args:
            is_proportional: the optimizer's steps are proportional to the gradient, as those of SGD
                without momentum are, and are not of a script, which brings its own.
            can_stop: workers can stop computing. They cannot if they push parts of a gradient
                meanwhile, and a script does so only where it says.
        """
        if self.rule != "progress":
            return self
        stale = is_proportional if self.stale is None else self.stale
        return replace(self, stale=stale, late=self.late or ("stop" if can_stop else "finish"))

    @property
    def has_stale_gradients(self) -> bool:
        return bool(self.stale)

    @property
    def at_start(self) -> Policy:
        return self._asp if self.rule == "progress" and self.stale else self

    @property
    def leaves_behind(self) -> bool:
        return self.rule == "progress"

    @property
    def stops_late(self) -> bool:
        return self.late == "stop"

    @property
    def measures_noise(self) -> bool:
        """True if servers measure the gradient noise (`Shard.measure_noise`)."""
        return self.rule == "progress" and self.noise_scale is None

    @property
    def needs_iterations(self) -> bool:
        """True if the rule must know how many iterations the training has."""
        return self.rule == "sync-switch" and self.after is None

    def rule_for(self, workers: int, iterations: int | None) -> Rule:
        """Return the rule at the start of a run.

        iterations: of the training; may be None unless `needs_iterations`.
        """
        if self.rule == "progress":
            return Progress(
                workers,
                self.window,
                self.gain_percent,
                self.noise_scale,
                stale=bool(self.stale),
                stops_late=self.stops_late,
            )
        after = self.after
        if after is None:
            assert iterations is not None
            after = max(1, math.ceil((self.share or SHARE) * iterations))
        return SyncSwitch(after)

    @property
    def _asp(self) -> Asp:
        """ASP as a setting of the rule. That of progress has the mean of gradients elsewhere."""
        over_staleness = self.rule == "progress" and self.scale is Scale.MEAN
        return Asp(scale=Scale.STALENESS if over_staleness else self.scale, wire=self.wire)

    def at(self, setting: Setting, workers: int) -> Bsp | Asp | Ssp | DropStragglers | PartialPush:
        """Return the policy of the servers with this setting, if so many workers take part."""
        family, value, grace = setting
        if value is None:
            return self._asp
        late = self.late or "finish"
        if grace:
            return PartialPush(
                early(workers),
                late=late,
                timeout_s=seconds(grace),
                enough=value,
                scale=self.scale,
                wire=self.wire,
            )
        if family is Family.QUORUM:
            return DropStragglers(value, late=late, scale=self.scale, wire=self.wire)
        if value == 0:
            return Bsp(scale=self.scale, wire=self.wire)
        return Ssp(value, scale=self.scale, wire=self.wire)

    def problems(self, workers: int) -> Iterator[str]:
        yield from Policy.problems(self, workers)
        if self.scale not in (Scale.MEAN, Scale.SUM):
            yield f"scale: adaptive has mean or sum, which all of its settings have: {self.scale}"

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return bounded(pull, view, 0)
