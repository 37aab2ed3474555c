"""The result of `outpace advise`, of which terminal, page and advice.json are made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pydantic

from outpace.report.explaining.explanation import Cause
from outpace.support.estimates import NOTHING, Estimate
from outpace.support.targets import Target

BSP: Final = "BSP"
ALL_REDUCE: Final = "all-reduce"


@dataclass(frozen=True, slots=True)
class Promise:
    """Intervals that should contain the value of a real run, or of a pair of them, with 90 %.

    Attributes:
        seeds: from the spread over seeds alone, and the evaluations.
        prediction: from the error of the calibration alone, and the evaluations; without ends if
            that error is not known.
        both: from all.
        error: relative standard error of the calibration's prediction; None if unknown.
    """

    seeds: Estimate = NOTHING
    prediction: Estimate = NOTHING
    both: Estimate = NOTHING
    error: float | None = None


@dataclass(frozen=True, slots=True)
class OneRun(Promise):
    """How long one real run of the recommended strategy takes until the target, in seconds.

    Attributes:
        no_error: why the error of the calibration is not known; empty if it is.
        speedup_over_bsp: the factor for one run beside one of BSP.
        evaluated_every_s: mean time between the evaluations around the target; None without runs.
    """

    no_error: str = ""
    speedup_over_bsp: Promise = field(default_factory=Promise)
    evaluated_every_s: float | None = None


@dataclass(frozen=True, slots=True)
class AfterTarget:
    """What became of runs that continued after the target.

    Attributes:
        runs: that continued.
        left: how many of them ended worse than the target, by more than a tenth of the loss or of
            the share of errors.
        worst: the worst last accuracy or loss of those that left; None without any.
        final: mean last accuracy or loss of the runs that were to continue.
    """

    runs: int = 0
    left: int = 0
    worst: float | None = None
    final: Estimate = NOTHING


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What is known of a strategy: on the fresh seeds if it was run on them, else by the search.

    Attributes:
        sync: the key `sync` of its configuration. beside: further keys that belong to it.
        reached: all of its runs that count reached the target.
        time_to_target_s: mean over seeds; a lower bound unless `reached`.
        learning_rate: None if there is none to choose, or the strategy was not run.
        lowered_from: the rate with which a run on a fresh seed diverged; else None.
        fresh: it was run on the fresh seeds.
        runs: that count. missed: how many of them missed the target.
        trials: runs in the search.
        speedup_over_bsp: over pairs of fresh seeds.
        error: why a run failed; else None.
    """

    name: str
    family: str
    sync: Mapping[str, Any]
    reached: bool
    time_to_target_s: Estimate
    learning_rate: float | None
    fresh: bool
    runs: int
    missed: int
    trials: int
    beside: Mapping[str, Any] = field(default_factory=dict)
    lowered_from: float | None = None
    speedup_over_bsp: Estimate = NOTHING
    after_target: AfterTarget = field(default_factory=AfterTarget)
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Leader:
    """The strategy that is ahead while none is reliably better than BSP.

    Attributes:
        speedup_over_bsp: estimated; None if BSP missed the target.
        seeds: on which it was run. fresh: they had no part in the search.
    """

    name: str
    speedup_over_bsp: float | None
    seeds: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class ChangedCluster:
    """What a changed cluster would change.

    Attributes:
        reason: why it was not looked at; empty if there was no time, or it was.
        best: the first strategy; None if it was not looked at.
        speedup_over_bsp: of the finalists.
    """

    change: str
    reason: str = ""
    best: str | None = None
    speedup_over_bsp: Mapping[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verified:
    """What was predicted and measured for a strategy, in words; error: relative, None: unknown."""

    name: str
    predicted: str
    measured: str
    error: float | None


@dataclass(frozen=True, slots=True)
class Effort:
    """What the study cost.

    Attributes:
        trials: runs of the search.
        one_run_s: real time of the first run of BSP.
        elapsed_s: real time of the study.
        processor_s: of all runs.
    """

    trials: int
    one_run_s: float
    elapsed_s: float
    processor_s: float


@dataclass(frozen=True, slots=True)
class AdviceResult:
    """The advice of a study.

    Attributes:
        outpace: the version that gave it.
        status: `complete`; `budget` if its time was over before; or `interrupted`.
        configuration: names what was asked about.
        strategy: `sync.kind` of the recommended strategy. name: its name among the candidates.
        recommendation: the configuration to run. command: that runs it; empty without a file.
        speedup_over_bsp, speedup_over_all_reduce: of the recommended strategy.
        distinguishable: a strategy other than BSP is recommended.
        min_gain: the least gain over BSP, as a share, for which one is.
        best: the strategy with the shortest time on the fresh seeds, reliably sooner or not.
        ahead: the leader of a study that ended before one was reliably better than BSP.
        not_tried: number of candidates for which there was no time.
        more_s: estimate of the time that a complete study would still need; None if it is.
        probability_best: that the strategy is the fastest, by the spread over seeds; None: unknown.
        seeds: the fresh ones on which all finalists were run.
        left_out: candidates that the configuration does not allow, with the reason.
        first_log: number of runs of the recommended strategy and BSP on fresh seeds that reached
            the target at their first log.
        short: seconds of a run and of a step of BSP, if they are too short to judge by; else None.
        notes: of the cluster files, about how they were recorded.
        time_goes: shares of a worker's time by strategy: compute, communicate, wait.
        whole_s: virtual time until which some runs continued after the target; 0: none did.
        evaluated_every_s: time between evaluations on fresh seeds; None: as configured.
        evaluate_replaced: the configuration has an interval that was not used.
        causes: what slows BSP.
        warnings: of the runs, each behind the names of the candidates.
        verified: with `verify`, what real runs showed.
        study: what tells one study from another.
    """

    outpace: str
    status: str
    target: Target
    configuration: str
    workers: int
    strategy: str
    name: str
    recommendation: Mapping[str, Any]
    candidates: tuple[CandidateResult, ...]
    effort: Effort
    command: str = ""
    learning_rate: float | None = None
    speedup_over_bsp: Estimate = NOTHING
    speedup_over_all_reduce: Estimate = NOTHING
    distinguishable: bool = False
    min_gain: float = 0.0
    best: str = BSP
    ahead: Leader | None = None
    not_tried: int = 0
    more_s: float | None = None
    probability_best: Mapping[str, float | None] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    one_run: OneRun = field(default_factory=OneRun)
    first_log: int = 0
    short: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    time_goes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    whole_s: float = 0.0
    sensitivity: tuple[ChangedCluster, ...] = ()
    evaluated_every_s: float | None = None
    evaluate_replaced: bool = False
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()
    verified: tuple[Verified, ...] = ()
    study: Any = None

    def candidate(self, name: str) -> CandidateResult:
        return next(each for each in self.candidates if each.name == name)

    @property
    def fresh(self) -> list[CandidateResult]:
        """The candidates that were run on the fresh seeds, the fastest first."""
        return [each for each in self.in_order if each.fresh]

    @property
    def in_order(self) -> list[CandidateResult]:
        """The candidates: those on fresh seeds first, then those that reached the target."""

        def key(each: CandidateResult) -> tuple[bool, bool, float]:
            mean = each.time_to_target_s.mean
            return not each.fresh, not each.reached, math.inf if mean is None else mean

        return sorted(self.candidates, key=key)

    def plain(self) -> dict[str, Any]:
        """Return the content of advice.json."""
        found: dict[str, Any] = _finite(dataclasses.asdict(self))
        found["target"] = {key: v for key, v in found["target"].items() if v is not None}
        return found


def advice_from(data: Mapping[str, Any]) -> AdviceResult:
    """Return the advice with this content of advice.json.

    Raises:
        ValueError: if it is damaged, or was written by another version of Outpace.
    """
    return pydantic.TypeAdapter(AdviceResult).validate_python(data)


def _finite(value: Any) -> Any:
    """Return plain data in which numbers that JSON does not have are None."""
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
