"""The runs of the finalists on changed clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from outpace.experiment.advising.judging.found import Found, time_to
from outpace.experiment.advising.limits import LONGEST
from outpace.experiment.advising.question.candidates import BSP
from outpace.experiment.advising.question.curves import Bound, Trial
from outpace.experiment.advising.question.scenarios import Scenario
from outpace.experiment.advising.searching.runner import PoolRunner
from outpace.experiment.trials import Pool

SEEDS: Final = 3  # of each changed cluster, at most
CLUSTERS: Final = 3


def changed_runs(seeds: int, names: int) -> int:
    """Return how many runs the changed clusters need, with this many fresh strategies."""
    return CLUSTERS * min(SEEDS, seeds) * max(0, names - 1)


def on_changed_cluster(
    scenario: Scenario,
    found: Found,
    pool: Pool,
    like: PoolRunner,
    seeds: int,
    ticked: Callable[[int], None],
) -> bool:
    """Run the finalists and BSP on a changed cluster, and note their times.

    Args:
        like: the runner of the study, whose deadline and evaluations hold here, too.
        seeds: the number of fresh seeds.
        ticked: called with the number of runs that have ended.

    Returns:
        False if there was not enough time; then nothing is noted.
    """
    if scenario.problem is None or not found.fresh:
        found.changed.append((scenario, {}))
        return True
    search, problem = found.search, scenario.problem
    names = [name for name in found.fresh if name == BSP or name in search.finalists()]
    names = [n for n in names if any(each.name == n for each in problem.candidates)]
    level = problem.goal.level
    bound = Bound(LONGEST * found.horizon_fresh_s, level)
    trials = [
        Trial(name, search.best_rate(name), problem.seed + place, bound)
        for place in range(min(SEEDS, seeds))
        for name in names
    ]
    runner = PoolRunner(problem, pool, like.deadline_s)
    runner.every_s = like.every_s
    runner.ticked = lambda: ticked(runner.done)
    curves = dict(runner.run(trials))
    like.cost_s += runner.cost_s
    found.cost_of_finalists_s += sum(c.cost_s for t, c in curves.items() if t.candidate != BSP)
    if len(curves) < len(trials):
        return False
    times = {
        name: [time_to(curves[t], level, bound.horizon_s) for t in trials if t.candidate == name]
        for name in names
    }
    found.changed.append((scenario, times))
    return True
