"""The runs on fresh seeds, and what is done if training diverges on one of them."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.experiment.advising.question.curves import Bound, Curve, Trial
from outpace.experiment.advising.searching.search import Search


class FreshRuns:
    """The runs of the finalists and the references on the fresh seeds.

    A learning rate is chosen on a few seeds, and training may diverge with it on another one. The
    strategy then gets the next lower rate, once, on all fresh seeds. Which rate that is follows
    from divergence alone and not from times, so the times of the lower rate are not flattered.

    Attributes:
        names: of the strategies.
        curves: of the runs that have ended, with all rates.

    Args:
        bound: of every run.
        whole: by seed, the virtual time until which runs continue after the target.
    """

    def __init__(
        self,
        search: Search,
        names: Sequence[str],
        seeds: Sequence[int],
        bound: Bound,
        whole: dict[int, float],
    ) -> None:
        self._search, self.names, self._seeds = search, names, seeds
        self._bound, self._whole = bound, whole
        self.curves: dict[Trial, Curve] = {}

    def trials(self, seeds: Sequence[int] | None = None) -> list[Trial]:
        """Return the trials of these seeds, or of all, with the present learning rates."""
        return [
            Trial(name, self._search.best_rate(name), seed, self._bound, self._whole.get(seed, 0.0))
            for seed in (self._seeds if seeds is None else seeds)
            for name in self.names
        ]

    def left(self, seeds: Sequence[int] | None = None) -> list[Trial]:
        """Return those of the trials that have not been run."""
        return [trial for trial in self.trials(seeds) if trial not in self.curves]

    def lower(self) -> dict[str, float]:
        """Lower the rates of strategies that diverged; return their rates before, by name."""
        search = self._search
        if search.space.rate is None:
            return {}
        diverged = {t.candidate: t.rate for t, c in self._ended() if c.diverged}
        found = {name: rate for name, rate in diverged.items() if name not in search.lowered}
        for name in found:
            search.lower_rate(name)
        return found

    def settle(self) -> None:
        """Take lowered rates back that were run on fewer seeds than those before them."""
        now = [trial.candidate for trial, _ in self._ended()]
        for name, before in list(self._search.lowered.items()):
            runs = sum(t.candidate == name and t.rate == before for t in self.curves)
            if now.count(name) < min(runs, len(self._seeds)):
                del self._search.lowered[name]

    def _ended(self) -> list[tuple[Trial, Curve]]:
        return [(trial, self.curves[trial]) for trial in self.trials() if trial in self.curves]
