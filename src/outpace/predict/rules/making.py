"""Makes a cut-off rule from its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from outpace.errors import ConfigError
from outpace.predict.fitting import Fitting
from outpace.predict.interface import Model, Rule, Wait
from outpace.predict.recorded.table import Nodes, Seconds
from outpace.predict.rules.decisions import (
    Decision,
    best_count,
    best_count_or_deadline,
    best_deadline,
)
from outpace.predict.rules.elfving import Elfving
from outpace.predict.rules.fixed import Fixed, share_of
from outpace.predict.rules.hedge import Hedge
from outpace.predict.rules.learning import Learning
from outpace.predict.rules.objective import objective
from outpace.predict.rules.oracle import Oracle
from outpace.predict.rules.predicted import Predicted, Replan
from outpace.predict.rules.rolling import Rolling
from outpace.predict.rules.settings import INDEPENDENT, ROLLING, CutOffSettings
from outpace.predict.rules.wrappers import Every, Fallback, WarmUp

_PLANS: Final[dict[str, Decision]] = {
    "count": best_count,
    "deadline": best_deadline,
    "count-or-deadline": best_count_or_deadline,
}
_WINDOWS: Final = {  # model -> number of iterations, usual decision
    "last": (1, "count"),
    "mean-5": (5, "count"),
    "last-20": (20, "count"),
    "last-5": (5, "deadline"),
}
_MEANT_FOR: Final = {"deep-markov": "count", "pooled": "replan"}


def make_rule(
    settings: CutOffSettings,
    *,
    node: Nodes,
    seed: int = 0,
    fitted: Model | None = None,
    fitting: Fitting | None = None,
    truth: Callable[[], Seconds] | None = None,
    say: Callable[[str], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Rule:
    """Return a new rule for one run.

    Args:
        settings: of the rule; the model file is not read here.
        node: the machine of each worker, shape (N,).
        seed: seeds the model's draws.
        fitted: a learned model.
        fitting: fits a learned model to the warm-up if `fitted` is None.
        truth: returns the run times of the next iteration, for the oracle.
        say: called once with the reason if the last-20 rule takes over, because the learned
            rule raised an exception or is late (see `Fallback`).
        note: called with messages for the log (see `Learning` and `Replan`).
        clock: returns seconds; measures how long predictions take.

    Raises:
        ConfigError: if the rule needs a model or the true times and they are not given.
    """
    maker = _Maker(settings, node, seed, say, note, clock)
    if settings.model in INDEPENDENT:
        return maker.independent(truth)
    if settings.model in ROLLING:
        rule = maker.seldom(maker.rolling(settings.model, settings.decision))
        return WarmUp(rule, settings.iterations_for_all)
    if fitted is not None:
        if fitted.kind != settings.model:
            raise ConfigError(
                f"the model is of kind {fitted.kind!r}, and {settings.model!r} was asked for: "
                "name the other kind, or fit another model"
            )
        return maker.learned(fitted)
    if fitting is None:
        raise ConfigError(f"model {settings.model!r} has to be fitted to recorded run times first")
    meanwhile = maker.seldom(maker.rolling("last-20"))
    warmup = settings.iterations_for_all
    return Learning(fitting, maker.learned, meanwhile, node=node, warmup=warmup, note=note, say=say)


@dataclass(frozen=True, slots=True)
class _Maker:
    settings: CutOffSettings
    node: Nodes
    seed: int
    say: Callable[[str], None]
    note: Callable[[str], None]
    clock: Callable[[], float]

    def independent(self, truth: Callable[[], Seconds] | None) -> Rule:
        settings = self.settings
        if settings.model == "fixed":
            return share_of(len(self.node), settings.share)
        if settings.model == "elfving":
            return Elfving(window=settings.iterations_for_all)
        if settings.model == "oracle":
            if truth is None:
                raise ConfigError(
                    "sync.model: the oracle needs the run times beforehand, which a real run "
                    "cannot know; simulate it, or choose another model"
                )
            return Oracle(truth, objective(settings.objective))
        return Fixed(Wait())

    def rolling(self, name: str, decision: str | None = None) -> Rolling:
        iterations, usual = _WINDOWS[name]
        plan, goal = _PLANS[decision or usual], objective(self.settings.objective)
        return Rolling(iterations, plan, goal, averaged=name.startswith("mean"))

    def seldom(self, rule: Rule) -> Rule:
        every = self.settings.every
        return Every(rule, every) if every > 1 else rule

    def learned(self, fitted: Model) -> Rule:
        settings, say, clock = self.settings, self.say, self.clock
        decision = settings.decision or _MEANT_FOR[fitted.kind]
        plan = _MEANT_FOR[fitted.kind] if decision == "hedge" else decision
        following = fitted.follow(self.node, self.seed)
        goal, samples = objective(settings.objective), settings.samples
        rule: Rule
        if plan in _PLANS:
            rule = Predicted(following, _PLANS[plan], goal, samples=samples)
        elif settings.every > 1:
            rule = Predicted(following, best_count_or_deadline, goal, samples=samples)
        else:
            rule = Replan(following, goal, samples=samples, clock=clock, note=self.note)
        rule = Fallback(self.seldom(rule), self.rolling("last-20"), say=say, clock=clock)
        warmup = settings.iterations_for_all
        if decision == "hedge":
            others = [self.seldom(self.rolling(name)) for name in ("last-20", "last-5")]
            return Hedge([rule, *others], warmup=max(warmup, 2 * fitted.needs))
        return WarmUp(rule, max(warmup, fitted.needs))
