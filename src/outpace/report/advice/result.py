"""The result of `outpace advise`, from which terminal, page and advice.json are made."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pydantic

from outpace.support.estimates import NOTHING, Estimate
from outpace.support.targets import Target

BSP: Final = "BSP"
ALL_REDUCE: Final = "all-reduce"


@dataclass(frozen=True, slots=True)
class OneRun:
    """The expected time of one real run of the recommended strategy, with 90 % probability.

    Attributes:
        time_s: seconds until the target.
        speedup_over_bsp: the ratio for one run: time of one run of BSP divided by its time.
        evaluated_every_s: mean time between the evaluations around the target; None without runs.
    """

    time_s: Estimate = NOTHING
    speedup_over_bsp: Estimate = NOTHING
    evaluated_every_s: float | None = None


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """The results of a strategy: on the fresh seeds if it was run on them, else in the search.

    Attributes:
        sync: the key `sync` of its configuration.
        reached: True if all runs that count reached the target.
        time_to_target_s: mean time over seeds; a lower bound unless `reached`.
        learning_rate: the chosen rate; None if no rate can be set, or the strategy was not run.
        fresh: True if the strategy was run on the fresh seeds.
        runs: number of runs that count.
        missed: number of runs that count and missed the target.
        lowered_from: the learning rate with which a run on a fresh seed diverged; else None.
        speedup_over_bsp: the factor over pairs of fresh seeds.
        error: why a run failed; else None.
    """

    name: str
    sync: Mapping[str, Any]
    reached: bool
    time_to_target_s: Estimate
    learning_rate: float | None
    fresh: bool
    runs: int
    missed: int
    lowered_from: float | None = None
    speedup_over_bsp: Estimate = NOTHING
    error: str | None = None


@dataclass(frozen=True)
class AdviceResult:
    """The advice of a study.

    Attributes:
        outpace: the version of Outpace that gave the advice.
        status: `complete`; `budget` if the time of the study was over before its end; or
            `interrupted`.
        configuration: name of the configuration.
        strategy: `sync.kind` of the recommended strategy. name: its name among the candidates.
        recommendation: the configuration to run. command: the command that runs it; empty without a
            file.
        speedup_over_bsp, speedup_over_all_reduce: factors of the recommended strategy.
        distinguishable: True if a strategy other than BSP is recommended.
        min_gain: the least gain over BSP, as a share, for which another strategy is recommended.
        best: the strategy with the shortest time, even if it is not reliably sooner: on the fresh
            seeds if there are any, else in the search. best_speedup: its factor over BSP.
        more_s: estimate of the time that a complete study would still need; None if the study is
            complete.
        seeds: the fresh seeds on which all finalists were run.
        left_out: candidates that the configuration does not allow, with the reason.
        at_edge: BSP and the recommended strategy, if their learning rate is the highest or the
            lowest that was tried.
        first_log: number of runs of the recommended strategy and BSP on fresh seeds that reached
            the target at their first log.
        short: seconds of a run and of a step of BSP, if they are too short to judge; else None.
        notes: notes of the cluster files about how they were recorded.
        time_goes: shares of a worker's time under BSP and the recommended strategy: compute,
            communicate, wait.
        evaluated_every_s: time between evaluations on fresh seeds; None: as configured.
        warnings: warnings of the runs, each after the names of the candidates.
        trials: number of runs of the study. elapsed_s: its real time.
        study: the data that distinguish one study from another.
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
    command: str = ""
    learning_rate: float | None = None
    speedup_over_bsp: Estimate = NOTHING
    speedup_over_all_reduce: Estimate = NOTHING
    distinguishable: bool = False
    min_gain: float = 0.0
    best: str = BSP
    best_speedup: Estimate = NOTHING
    more_s: float | None = None
    seeds: tuple[int, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    one_run: OneRun = field(default_factory=OneRun)
    at_edge: tuple[str, ...] = ()
    first_log: int = 0
    short: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    time_goes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    evaluated_every_s: float | None = None
    warnings: tuple[str, ...] = ()
    trials: int = 0
    elapsed_s: float = 0.0
    study: Any = None

    @property
    def in_order(self) -> list[CandidateResult]:
        """The candidates: those on fresh seeds first, then those that reached the target."""

        def key(each: CandidateResult) -> tuple[bool, bool, float]:
            mean = each.time_to_target_s.mean
            return not each.fresh, not each.reached, math.inf if mean is None else mean

        return sorted(self.candidates, key=key)

    def plain(self) -> dict[str, Any]:
        """Return the content of advice.json."""
        # Numbers that JSON cannot represent become null.
        found: dict[str, Any] = json.loads(pydantic.TypeAdapter(AdviceResult).dump_json(self))
        found["target"] = {key: v for key, v in found["target"].items() if v is not None}
        return found
