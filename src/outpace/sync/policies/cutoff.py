"""Each iteration ends when somebody says so, for all servers: predicted cut-offs (BDSGD)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final, Literal

from outpace.support.checks import require
from outpace.sync.decision import Decision
from outpace.sync.messages import Pull
from outpace.sync.policies.bsp import once_finished
from outpace.sync.policy import Apply, Scale, ShardView

ModelName = Literal[
    "all",
    "fixed",
    "elfving",
    "last",
    "mean-5",
    "last-5",
    "last-20",
    "deep-markov",
    "pooled",
    "oracle",
]
WARM_UP: Final = 20  # iterations; learned models can be fitted to no fewer
DecisionName = Literal["count", "deadline", "count-or-deadline", "replan", "hedge"]
_ALONE: Final = ("all", "fixed", "elfving", "oracle")  # models that decide by themselves


@dataclass(frozen=True, slots=True)
class CutOff:
    """Answers i < V, and advances once all gradients are in that count for iteration V.

    Whose do is decided for all servers at once, by the scheduler (`programs.cutoff`): it
    hears who has finished, closes the iteration, and has the others stop computing. How long
    it waits is a rule of `predict.rules`: `decision` from what `model` predicts.

    decision: None: what the model is meant for. share: of the workers, that model `fixed`
    waits for (Chen et al. 2016: 0.943). file: of pooled and deep-markov, what `outpace runtimes
    fit` made; None: they are fitted to the warm-up. warmup: so many iterations at first that
    wait for all; None: 20, or with a file as few as the model needs. samples: joint draws per
    prediction.
    every: decide once in so many iterations. objective: gradients per second of each
    iteration (Ω), or over the run.
    workers_per_node: how many consecutive workers share a machine; None: as `colocate` and
    `compute` say, else unknown. Raises ValueError for numbers that are out of range.
    """

    model: ModelName = "pooled"
    decision: DecisionName | None = None
    file: str | None = None
    share: float = 0.943
    warmup: int | None = None
    samples: int = 100
    every: int = 1
    objective: Literal["iteration", "run"] = "iteration"
    workers_per_node: int | None = None
    kind: Literal["cutoff"] = "cutoff"
    scale: Scale = Scale.MEAN

    apply: ClassVar[Apply] = Apply.ON_ADVANCE
    cut_off: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(0 < self.share <= 1, "share", "above 0 and at most 1", self.share)
        require(self.warmup is None or self.warmup >= 0, "warmup", "from 0 on", self.warmup)
        require(1 < self.samples <= 100_000, "samples", "from 2 to 100,000", self.samples)
        require(self.every >= 1, "every", "at least 1", self.every)
        per_node = self.workers_per_node
        require(per_node is None or per_node >= 1, "workers_per_node", "at least 1", per_node)
        fits = self.decision is None or self.model not in _ALONE
        own = f"left out: {self.model} decides by itself"
        require(fits, "decision", own, self.decision)
        if self.model == "elfving":
            some = "at least 1: elfving learns from the warm-up alone"
            require(self.iterations_for_all >= 1, "warmup", some, self.warmup)
        if self.learned:
            enough = f"at least {WARM_UP}: {self.model} is fitted to that, if there is no file"
            too_few = self.fitted_in_run and self.iterations_for_all < WARM_UP
            require(not too_few, "warmup", enough, self.warmup)
        else:
            only = "left out: only pooled and deep-markov are fitted"
            require(self.file is None, "file", only, self.file)
            plans = f"count, deadline or count-or-deadline with model {self.model}"
            predicted = fits and self.decision in ("replan", "hedge")
            require(not predicted, "decision", plans, self.decision)

    @property
    def learned(self) -> bool:
        """Is it a model that is fitted to run times?"""
        return self.model in ("deep-markov", "pooled")

    @property
    def fitted_in_run(self) -> bool:
        """Is its model fitted to the warm-up?"""
        return self.learned and self.file is None

    @property
    def iterations_for_all(self) -> int:
        """The warm-up, as far as the fitted model does not need more."""
        if self.warmup is not None:
            return self.warmup
        return WARM_UP if self.file is None else 1

    def absolute(self, folder: Path) -> CutOff:
        """With the path of its file seen from `folder`."""
        if self.file is None:
            return self
        return replace(self, file=str((folder / self.file).resolve()))

    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        return once_finished(pull, view)

    def patience_s(self, view: ShardView) -> float:
        return 0.0 if view.awaited == 0 else math.inf
