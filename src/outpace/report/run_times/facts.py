"""Numbers and sentences about a table of run times, for the page and the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.predict.recorded.statistics import (
    SLOW,
    MeanThroughput,
    Ordered,
    Slowness,
    ordered,
    slowness,
    throughput,
)
from outpace.predict.recorded.table import RunTimes
from outpace.report.words import number, percent, plural, seconds

_WORTH: Final = 0.005  # a smaller gain is not worth a sentence


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """A table of run times and its statistics."""

    times: RunTimes
    order: Ordered
    rates: MeanThroughput
    slowness: Slowness

    @property
    def nodes(self) -> int:
        return len(np.unique(self.times.node))

    def numbers(self) -> dict[str, str]:
        """Return the main numbers by name."""
        times, rates = self.times, self.rates
        known = times.seconds[~np.isnan(times.seconds)]
        cut = float(times.censored.sum() / len(known))
        absent = 1 - len(known) / times.seconds.size
        most, least = ("", "") if rates.exact[-1] else ("at most ", "at least ")
        found = {
            "Workers": f"{times.workers:,}",
            "Nodes": f"{self.nodes:,}" if self.nodes > 1 else "",
            "Iterations": f"{times.iterations:,}",
            "Median": seconds(float(np.median(known))),
            "99 % are below": seconds(float(np.quantile(known, 0.99))),
            "Longest": seconds(float(known.max())),
            "Cut off": percent(cut) if cut else "",
            "Missing": percent(absent) if absent else "",
            "Gradients/s, waiting for all": f"{most}{number(rates.all)}",
            "Best count": f"{rates.best:,}" if rates.best else "",
            "Gradients/s, best count": number(rates.rate[rates.best - 1]) if rates.best else "",
            "Gain": "" if rates.gain is None else f"{least}{percent(rates.gain)}",
        }
        return {name: value for name, value in found.items() if value}

    def sentences(self) -> list[str]:
        """Return the findings, the most important first."""
        found = [self._gain(), self._hindsight(), self._stragglers()]
        return [sentence for sentence in found if sentence]

    def _gain(self) -> str:
        rates, workers = self.rates, len(self.rates.rate)
        if rates.gain is None:
            return (
                f"Too many workers were cut off to say whether a fixed count beats waiting for "
                f"all: rates are known up to a count of {int(rates.exact.sum()):,} of {workers:,}."
            )
        if rates.gain < _WORTH:
            return f"No fixed count gains anything over waiting for all {workers:,} workers."
        least = "" if rates.exact[-1] else "at least "
        return (
            f"Waiting for {rates.best:,} of {workers:,} workers would give {least}"
            f"{percent(rates.gain)} more gradients per second than waiting for all."
        )

    def _hindsight(self) -> str:
        best = self.rates.hindsight
        if best is None or best / self.rates.all - 1 < _WORTH:
            return ""
        return (
            f"With the best count of each iteration, which is known only afterwards, it would be "
            f"{percent(best / self.rates.all - 1)} more: predictions cannot gain more than that."
        )

    def _stragglers(self) -> str:
        share = self.slowness.share
        worker = int(share.argmax())
        if not share[worker]:
            return f"No worker ever took more than {SLOW:g} times as long as the fastest fifth."
        longest = plural(int(self.slowness.longest[worker]), "iteration")
        return (
            f"Worker {worker} was slow most often, in {percent(float(share[worker]))} of the "
            f"iterations, up to {longest} in a row. Of all run times "
            f"{percent(float(self.slowness.slow.sum() / (~np.isnan(self.times.seconds)).sum()))} "
            f"were slow: more than {SLOW:g} times as long as the fastest fifth"
            + (", or cut off." if self.times.censored.any() else ".")
        )


def facts_of(times: RunTimes) -> Facts:
    order = ordered(times)
    return Facts(times, order, throughput(order), slowness(times))
