"""Rules by name, as a configuration has them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from outpace.errors import ConfigError, did_you_mean
from outpace.predict.fitting import Fitting
from outpace.predict.interface import Model, Rule, Wait
from outpace.predict.recorded.table import Nodes, Seconds
from outpace.predict.rules.decisions.count import best_count
from outpace.predict.rules.decisions.count_or_deadline import best_count_or_deadline
from outpace.predict.rules.decisions.deadline import best_deadline
from outpace.predict.rules.decisions.objective import Aim, objective
from outpace.predict.rules.decisions.plan import Decision
from outpace.predict.rules.elfving import Elfving
from outpace.predict.rules.fixed import CHEN, Fixed, share_of
from outpace.predict.rules.oracle import Oracle
from outpace.predict.rules.predicted import Predicted
from outpace.predict.rules.replan import Replan
from outpace.predict.rules.rolling import Rolling
from outpace.predict.rules.wrappers.every import Every
from outpace.predict.rules.wrappers.fallback import Fallback
from outpace.predict.rules.wrappers.hedge import Hedge
from outpace.predict.rules.wrappers.learning import Learning
from outpace.predict.rules.wrappers.warm_up import WarmUp
from outpace.support.checks import require

WARM_UP: Final = 20  # iterations
SAMPLES: Final = 100
PLANS: Final[dict[str, Decision]] = {
    "count": best_count,
    "deadline": best_deadline,
    "count-or-deadline": best_count_or_deadline,
}
DECISIONS: Final = (*PLANS, "replan", "hedge")
ROLLING: Final = {
    "last": (1, "count"),
    "mean-5": (5, "count"),
    "last-20": (20, "count"),
    "last-5": (5, "deadline"),
}
LEARNED: Final = {"deep-markov": "count", "pooled": "replan"}  # with what each is meant for
ALONE: Final = ("all", "fixed", "elfving", "oracle")  # without a decision
MODELS: Final = (*ALONE, *ROLLING, *LEARNED)


def make_rule(
    model: str,
    decision: str | None = None,
    *,
    node: Nodes,
    fitted: Model | None = None,
    fitting: Fitting | None = None,
    share: float = CHEN,
    warmup: int = WARM_UP,
    samples: int = SAMPLES,
    every: int = 1,
    aim: Aim = "throughput",
    seed: int = 0,
    truth: Callable[[], Seconds] | None = None,
    say: Callable[[str], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Rule:
    """A new rule for one run of the workers on these nodes, shape (N,).

    model: one of MODELS. decision: one of DECISIONS, by default what the model is meant for;
    a model of ALONE has none. fitted: of a learned model; or else fitting: how to fit one to
    the warm-up (see `Learning`, which tells `note`). truth: of the oracle, as in `Oracle`.
    every: decide in every k-th iteration; then `replan` plans only. say: told once if the
    last-20 rule has taken over, because the learned one raised or is late by `clock` (see
    `Fallback`, and `Replan` for its other use). Raises ValueError for a value out of range,
    ConfigError for names that do not go together.
    """
    if model not in MODELS:
        raise ConfigError(f"no run-time model is called {model!r}.{did_you_mean(model, MODELS)}")
    if decision is not None and decision not in DECISIONS:
        raise ConfigError(f"no decision is called {decision!r}.{did_you_mean(decision, DECISIONS)}")
    require(every >= 1, "every", "at least 1", every)
    require(warmup >= 0, "warmup", "at least 0", warmup)
    if model in ALONE:
        return _alone(model, decision, len(node), share, warmup, aim, truth)
    rolling = partial(_rolling, aim=aim)
    if model in ROLLING:
        if decision not in (None, *PLANS):
            raise ConfigError(
                f"decision {decision!r} needs a prediction of a learned model, and {model!r} has "
                f"none. Take one of {', '.join(PLANS)}, or a model of {', '.join(LEARNED)}"
            )
        return WarmUp(_seldom(rolling(model, decision), every), warmup)

    decision = decision or LEARNED[model]
    learned = partial(
        _learned,
        decision=decision,
        node=node,
        warmup=warmup,
        samples=samples,
        every=every,
        aim=aim,
        seed=seed,
        say=say,
        note=note,
        clock=clock,
    )
    if fitted is not None:
        if fitted.kind != model:
            raise ConfigError(
                f"model {model!r} was asked for, and the fitted one is {fitted.kind!r}: "
                "ask for that, or fit another"
            )
        return learned(fitted)
    if fitting is None:
        raise ConfigError(f"model {model!r} has to be fitted to recorded run times first")
    meanwhile = _seldom(rolling("last-20"), every)
    return Learning(fitting, learned, meanwhile, node=node, warmup=warmup, note=note, say=say)


def _learned(
    fitted: Model,
    *,
    decision: str,
    node: Nodes,
    warmup: int,
    samples: int,
    every: int,
    aim: Aim,
    seed: int,
    say: Callable[[str], None],
    note: Callable[[str], None],
    clock: Callable[[], float],
) -> Rule:
    plan = LEARNED[fitted.kind] if decision == "hedge" else decision
    following = fitted.follow(node, seed)
    goal = objective(aim)
    rule: Rule
    if plan in PLANS:
        rule = Predicted(following, PLANS[plan], goal, samples=samples)
    elif every > 1:
        rule = Predicted(following, best_count_or_deadline, goal, samples=samples)
    else:
        rule = Replan(following, goal, samples=samples, clock=clock, note=note)
    rule = Fallback(_seldom(rule, every), _rolling("last-20", aim=aim), say=say, clock=clock)
    if decision == "hedge":
        others = [_seldom(_rolling(name, aim=aim), every) for name in ("last-20", "last-5")]
        return Hedge([rule, *others], warmup=max(warmup, 2 * fitted.needs))
    return WarmUp(rule, max(warmup, fitted.needs))


def _alone(
    model: str,
    decision: str | None,
    workers: int,
    share: float,
    warmup: int,
    aim: Aim,
    truth: Callable[[], Seconds] | None,
) -> Rule:
    if decision is not None:
        raise ConfigError(f"model {model!r} decides by itself: leave out decision {decision!r}")
    if model == "fixed":
        return share_of(workers, share)
    if model == "elfving":
        return Elfving(window=warmup)
    if model == "oracle":
        if truth is None:
            raise ConfigError(
                "sync.model: the oracle has to be told the times, which a real run cannot know; "
                "simulate it, or take another model"
            )
        return Oracle(truth, objective(aim))
    return Fixed(Wait())


def _rolling(name: str, decision: str | None = None, *, aim: Aim) -> Rolling:
    iterations, usual = ROLLING[name]
    plan = PLANS[decision or usual]
    return Rolling(iterations, plan, objective(aim), averaged=name.startswith("mean"))


def _seldom(rule: Rule, every: int) -> Rule:
    return Every(rule, every) if every > 1 else rule
