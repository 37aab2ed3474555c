"""The settings of a cut-off rule, and the names of models and decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import Field

from outpace.support.checks import (
    Count,
    NotNegative,
    Number,
    Share,
    check_ranges,
    require,
)
from outpace.support.paths import FILE

# models that are used without a decision
IndependentName: TypeAlias = Literal["all", "fixed", "elfving", "oracle"]
# Models from the last iterations.
RollingName: TypeAlias = Literal["last", "mean-5", "last-20", "last-5", "early-20"]
LearnedName: TypeAlias = Literal["deep-markov", "pooled"]  # models that are fitted to run times
ModelName: TypeAlias = Literal[IndependentName, RollingName, LearnedName]
# decisions that are made once per iteration
PlanName: TypeAlias = Literal["count", "deadline", "count-or-deadline"]
DecisionName: TypeAlias = Literal[PlanName, "replan", "hedge"]

INDEPENDENT: Final = get_args(IndependentName)
ROLLING: Final = get_args(RollingName)
LEARNED: Final = get_args(LearnedName)
PLANS: Final = get_args(PlanName)
DECISIONS: Final = get_args(DecisionName)
WARM_UP: Final = 20  # least number of iterations to which a learned model can be fitted
CHEN: Final = 0.943  # Chen et al. 2016, quoted by BDSGD: 2051 of 2175 workers


@dataclass(frozen=True, slots=True)
class CutOffSettings:
    """Settings of the rule that decides how long an iteration stays open.

    Attributes:
        model: predicts the run times of the next iteration. `all`: no prediction, wait for all
            workers. `fixed`: none, wait for `share` of the workers, then `timeout_s`. `elfving`:
            normal run times, fitted to the warm-up. `last`: the last iteration. `mean-5`: the mean
            of the last five. `last-5`, `last-20`: the last iterations, as draws. `early-20`: the
            last 20 iterations, relative to the arrival of the first quarter of the workers; decided
            at that arrival. `pooled`, `deep-markov`: learned. `oracle`: the true run times; virtual
            time only.
        decision: how a wait is chosen from a prediction. `count`: a number of gradients.
            `deadline`: a number of seconds. `count-or-deadline`: whichever comes first. `replan`:
            decided again as gradients arrive or fail to; learned models. `hedge`: by the rule that
            did best lately of `last-5`, `last-20`, `early-20` and the model's own; learned models.
            None: the usual one for the model.
        file: a model of kind pooled or deep-markov, made by `outpace runtimes fit`; None: the
            model is fitted to the first iterations of the run.
        share: share of the workers that model `fixed` waits for (Chen et al. 2016: 0.943).
        timeout_s: seconds that model `fixed` then waits for others, as partial push does.
        warmup: number of iterations at the beginning that wait for all workers; None: 20, or with a
            model file the number that the model needs, or 0 if model `pooled` is fitted in the run.
        samples: number of joint draws per prediction.
        every: number of iterations for which a decision holds; `early-20` decides in each.
        workers_per_node: number of consecutive workers that share a machine; None: as given by
            `colocate` and `compute`, else one.
        ordered: True: model deep-markov, fitted in the run, models the sorted run times (BDSGD,
            section 4.2); False: each worker's own; None: sorted with more than 512 workers.

    Raises:
        ValueError: for values out of range, and for names that cannot be combined.
    """

    model: ModelName = "pooled"
    decision: DecisionName | None = None
    file: str | None = field(default=None, metadata=FILE)
    share: Share = CHEN
    timeout_s: NotNegative = 0.0
    warmup: Number | None = None
    samples: Annotated[int, Field(ge=2, le=100_000)] = 100
    every: Count = 1
    workers_per_node: Count | None = None
    ordered: bool | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        is_fixed = self.model == "fixed"
        only = "left out: only model fixed has a time-out"
        require(is_fixed or self.timeout_s == 0, "timeout_s", only, self.timeout_s)
        if self.model in INDEPENDENT:
            own = f"left out: {self.model} decides by itself"
            require(self.decision is None, "decision", own, self.decision)
        if self.model in ROLLING:
            plans = f"count, deadline or count-or-deadline with model {self.model}"
            require(self.decision in (None, *PLANS), "decision", plans, self.decision)
        if self.model == "elfving":
            some = "at least 1: elfving learns from the warm-up alone"
            require(self.iterations_for_all >= 1, "warmup", some, self.warmup)
        only = f"left out: only {' and '.join(LEARNED)} are fitted"
        require(self.learned or self.file is None, "file", only, self.file)
        sorts = self.model == "deep-markov" and self.file is None
        how = "left out, except with deep-markov without a file"
        require(sorts or self.ordered is None, "ordered", how, self.ordered)

    @property
    def learned(self) -> bool:
        """True if the model is fitted to run times."""
        return self.model in LEARNED

    @property
    def fitted_in_run(self) -> bool:
        """True if the model is fitted to the beginning of the run."""
        return self.learned and self.file is None

    @property
    def fitted_to_all(self) -> bool:
        """True if the beginning of the run has to wait for all workers, for the fit.

        The pooled model can also learn from iterations that were cut off.
        """
        return self.fitted_in_run and self.model != "pooled"

    @property
    def iterations_for_all(self) -> int:
        """The length of the warm-up; a fitted model may need more."""
        if self.warmup is not None:
            return self.warmup
        if self.file is not None:
            return 1
        return 0 if self.fitted_in_run and not self.fitted_to_all else WARM_UP
