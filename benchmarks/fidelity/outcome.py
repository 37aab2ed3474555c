"""The quantities of a run that are compared, and a prediction together with the real run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from outpace.experiment.results import Result
from outpace.support.estimates import next_of

Quantities: TypeAlias = dict[str, float | None]  # None: the run has no such quantity

TOTAL, LOSS = "total", "to the loss"
TIMES: Final = (TOTAL, "iteration", "compute", "communicate", "wait", LOSS)  # s
COUNTS: Final = ("delayed pulls", "staleness", "dropped")
QUANTITIES: Final = (*TIMES, *COUNTS)
FEW: Final = 100  # counts below this are not judged


def quantities(result: Result, loss: float) -> Quantities:
    """Return the quantities of a run. Times in seconds, per worker.

    loss: the training loss; the time when it is reached is interpolated between evaluations.
    """
    summary = result.summary
    split = summary["seconds"]
    workers = len(summary["iterations"])
    return {
        TOTAL: summary.get("virtual_time_s", summary.get("wall_time_s")),
        "iteration": sum(split.values()) * workers / max(1, sum(summary["iterations"])),
        **split,
        LOSS: _time_to(result, loss),
        "delayed pulls": summary["delayed_pulls"],
        "staleness": summary["staleness"]["mean"],
        "dropped": summary["gradients_dropped"] + summary["pushes_abstained"],
    }


def _time_to(result: Result, loss: float) -> float | None:
    before: tuple[float, float] | None = None
    rows = result.metrics
    for time_s, found in zip(
        rows["time_s"].to_pylist(), rows["train_loss"].to_pylist(), strict=True
    ):
        if found is None:
            continue
        if found <= loss:
            if before is None or before[1] <= found:
                return float(time_s)
            share = (before[1] - loss) / (before[1] - found)
            return float(before[0] + share * (time_s - before[0]))
        before = time_s, found
    return None


@dataclass(frozen=True)
class Outcome:
    """A real run and the prediction of it.

    Attributes:
        cluster: what the prediction knew of network and servers: `calibrated` (on BSP), or
            `calibrated on BSP and SSGD`.
        law: where its computation times come from: `same draws` or `calibrated`.
        low, high: ends of the prediction interval, if several seeds were predicted.
        load: the machine's load (mean of a minute) before and after the real run.
    """

    part: str
    setup: str
    strategy: str
    seed: int
    cluster: str
    law: str
    predicted: Quantities
    real: Quantities
    load: tuple[float, float]
    low: Quantities = field(default_factory=dict)
    high: Quantities = field(default_factory=dict)

    def error(self, quantity: str) -> float | None:
        """Return predicted/real − 1; None if it has no meaning."""
        predicted, real = self.predicted.get(quantity), self.real.get(quantity)
        if predicted is None or not real:
            return None
        return predicted / real - 1

    def covers(self, quantity: str) -> bool | None:
        """True if the interval contains what was measured; None without an interval."""
        low, high, real = (each.get(quantity) for each in (self.low, self.high, self.real))
        return None if low is None or high is None or real is None else low <= real <= high

    def half_width(self, quantity: str) -> float | None:
        """Return half the width of the interval, divided by the prediction."""
        low, high, middle = (each.get(quantity) for each in (self.low, self.high, self.predicted))
        return None if low is None or high is None or not middle else (high - low) / 2 / middle


def over_seeds(
    found: Sequence[Quantities], share: float = 0.0
) -> tuple[Quantities, Quantities, Quantities]:
    """Return the mean and both ends of the interval that contains a further run with 90 %.

    Student's t for one more value of a normal law of which len(found) values are known; as
    `outpace compare` gives it for the time of a run.

    Args:
        share: number of gradients of a predicted run divided by the number in the run for
            calibration. It is used if the cluster is not drawn within the errors of its
            calibration: it is added to the factor 1 + 1/n of the variance.
    """
    n = len(found)
    mean: Quantities = {}
    low: Quantities = {}
    high: Quantities = {}
    for name in QUANTITIES:
        values = [value for each in found if (value := each.get(name)) is not None]
        if len(values) < n or not values:
            mean[name] = low[name] = high[name] = None
            continue
        estimate = next_of(values)
        mean[name] = centre = estimate.mean
        if centre is None or estimate.high is None:
            continue
        reach = (estimate.high - centre) * math.sqrt(1 + share / (1 + 1 / n))
        low[name], high[name] = centre - reach, centre + reach
    return mean, low, high
