"""Makes a cut-off rule from its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from outpace.errors import ConfigError
from outpace.predict.interface import Model, Rule, Wait
from outpace.predict.models import MODELS, Fitting
from outpace.predict.recorded import Nodes, Seconds
from outpace.predict.rules.baselines import Early, Elfving, Fixed, Oracle, Quorum, Rolling
from outpace.predict.rules.comparing import Hedge
from outpace.predict.rules.planning import (
    Decision,
    Predicted,
    Replan,
    best_count,
    best_count_or_deadline,
    best_deadline,
)
from outpace.predict.rules.settings import LEARNED, ROLLING, WARM_UP, CutOffSettings
from outpace.predict.rules.wrappers import Every, Fallback, Learning, WarmUp

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
    "early-20": (20, "deadline"),
}
HEDGED: Final = ("last-20", "last-5", "early-20")  # rules without a model


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
        settings: settings of the rule; the model file is not read here.
        node: the machine of each worker, shape (N,).
        seed: seeds the model's draws.
        fitted: a learned model.
        fitting: fits a learned model to the beginning of the run if `fitted` is None.
        truth: returns the run times of the next iteration, for the oracle.
        say: called once with the reason if the last-20 rule takes over, because the learned
            rule raised an exception or is late (see `Fallback`).
        note: called with messages for the log (see `Learning` and `Replan`).
        clock: returns seconds; measures how long predictions take.

    Raises:
        ConfigError: if the rule needs a model or the true times and they are not given.
    """
    warmup = settings.iterations_for_all
    if settings.model in ROLLING:
        return WarmUp(_rolling(settings, settings.model, settings.decision), warmup)
    if settings.model not in LEARNED:
        return _independent(settings, len(node), truth)

    def learned(model: Model, observes: int = 0) -> Rule:
        """Make a rule that observes `observes` iterations, or the warm-up, before it decides."""
        following, usual = model.follow(node, seed), MODELS[model.kind].decision
        decision = settings.decision or usual
        plan = usual if decision == "hedge" else decision
        rule: Rule
        if plan == "replan" and settings.every == 1:
            rule = Replan(following, samples=settings.samples, clock=clock, note=note)
        else:
            plan = "count-or-deadline" if plan == "replan" else plan
            rule = Every(Predicted(following, _PLANS[plan], settings.samples), settings.every)
        rule = Fallback(rule, _rolling(settings, "last-20"), say, clock)
        first = observes or warmup
        if decision == "hedge":
            others = [_rolling(settings, name) for name in HEDGED]
            return Hedge([rule, *others], warmup=max(first, 2 * model.needs), prefers_first=True)
        return WarmUp(rule, max(first, model.needs))

    if fitted is not None:
        if fitted.kind != settings.model:
            raise ConfigError(
                f"the model is of kind {fitted.kind!r}, and {settings.model!r} was asked for: "
                "name the other kind, or fit another model"
            )
        return learned(fitted)
    if fitting is None:
        raise ConfigError(f"model {settings.model!r} has to be fitted to recorded run times first")
    meanwhile = Hedge([_rolling(settings, name) for name in HEDGED], warmup=warmup)
    return Learning(meanwhile, fitting, learned, node, warmup, WARM_UP, note, say)


def _independent(
    settings: CutOffSettings, workers: int, truth: Callable[[], Seconds] | None
) -> Rule:
    match settings.model:
        case "fixed":
            count = max(1, round(settings.share * workers))
            if settings.timeout_s:
                return Quorum(count, settings.timeout_s)
            return Fixed(Wait(count=count))
        case "elfving":
            return Elfving(settings.iterations_for_all)
        case "oracle":
            if truth is None:
                raise ConfigError(
                    "sync.model: the oracle needs the run times beforehand, which a real run "
                    "cannot know; simulate it, or choose another model"
                )
            return Oracle(truth)
        case _:
            return Fixed(Wait())


def _rolling(settings: CutOffSettings, name: str, decision: str | None = None) -> Rule:
    iterations, usual = _WINDOWS[name]
    plan = _PLANS[decision or usual]
    if name.startswith("early"):
        return Early(iterations, plan)
    return Every(Rolling(iterations, plan, averaged=name.startswith("mean")), settings.every)
