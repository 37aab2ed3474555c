"""Lets the rule of an adaptive strategy observe a run and change the policy of its servers."""

from __future__ import annotations

from collections.abc import Callable

from outpace.config.experiment import Experiment
from outpace.record.switches import Switch
from outpace.support.units import Time, seconds
from outpace.sync import Adaptive, AdaptivePeriod
from outpace.sync.adaptive.interface import Observation
from outpace.sync.assignment import Sync


class Adaptation:
    """The rule of one run.

    Args:
        follow: has all servers follow a policy.
        note: called with each switch.
        clock: returns ns since the start of the run.
        noise: returns the sums `noise` and `signal` of the run's totals.
    """

    def __init__(
        self,
        experiment: Experiment,
        policy: Adaptive,
        follow: Callable[[Sync], None],
        note: Callable[[Switch], object],
        clock: Callable[[], Time],
        noise: Callable[[], tuple[float, float]],
    ) -> None:
        self._noise = noise
        self._policy, self._follow, self._note, self._clock = policy, follow, note, clock
        self._switches = 0
        self._rule = policy.rule_for(experiment.workers, experiment.stop.iterations)

    def iteration_finished(
        self, worker: int, iteration: int, started: Time, finished: Time, held: Time
    ) -> None:
        """Take an iteration of a worker; times in ns since the start of the run."""
        busy_s, before = seconds(finished - started - held), self._rule.setting
        seen = Observation(seconds(finished), worker, iteration, busy_s, *self._noise())
        order = self._rule.observe(seen)
        if order is None:
            return
        now = self._clock()  # before any server can know
        self._follow(self._policy.at(order.to))
        self._note(Switch.of(self._switches, now, iteration, before, order))
        self._switches += 1


def is_adaptive(experiment: Experiment) -> bool:
    """True if a rule changes the strategy while the run goes on."""
    return isinstance(experiment.sync, Adaptive | AdaptivePeriod)


def adaptive_policy(experiment: Experiment) -> Adaptive | None:
    """Return the policy of an adaptive strategy with servers; None: the strategy is another."""
    if experiment.peers is not None:
        return None
    policy = experiment.policies.strategy
    return policy if isinstance(policy, Adaptive) else None
