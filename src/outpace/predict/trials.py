"""Compares rules on a recorded run: the gradients per second of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, cast

from outpace.errors import ConfigError
from outpace.predict.interface import Model
from outpace.predict.models import FittingAtOnce
from outpace.predict.recorded import RunTimes, require_whole
from outpace.predict.replay import Replay, replay
from outpace.predict.rules.making import make_rule
from outpace.predict.rules.settings import ROLLING, WARM_UP, CutOffSettings, DecisionName, ModelName

_PLAIN: Final[tuple[ModelName, ...]] = ("all", "fixed", "elfving", *ROLLING)
_DECISIONS: Final[tuple[DecisionName, ...]] = ("count", "deadline", "replan", "hedge")


def trials(
    times: RunTimes,
    fitted: Model | None = None,
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> Iterator[tuple[str, Replay]]:
    """Yield the rules by name, the best-known last, with their results after the warm-up.

    fitted: a model whose decisions are tried; None: a pooled model is fitted to the warm-up, as in
    a run without a model file. progress: called with the completed share. Raises ConfigError if the
    recording lacks a worker's time, or is too short.
    """
    require_whole(times)
    if times.iterations <= WARM_UP:
        raise ConfigError(
            f"the recording has {times.iterations} iterations, and the first {WARM_UP} are the "
            "warm-up, so nothing is left to compare; record a longer run"
        )
    names: dict[str, tuple[ModelName, DecisionName | None]] = {
        name: (name, None) for name in _PLAIN
    }
    if fitted is None:
        names["pooled"] = "pooled", None
    else:
        kind = cast(ModelName, fitted.kind)
        names |= {f"{kind} {how}": (kind, how) for how in _DECISIONS}
    for number, (name, (model, decision)) in enumerate(names.items()):
        rule = make_rule(
            CutOffSettings(model=model, decision=decision, warmup=WARM_UP),
            node=times.node,
            fitted=fitted,
            fitting=FittingAtOnce(model, seed),
            seed=seed,
            say=partial(_failed, name),
        )
        yield name, replay(rule, times.seconds).since(WARM_UP)
        progress((number + 1) / len(names))


def _failed(name: str, why: str) -> None:
    raise ConfigError(f"{name}: {why}")
