"""The problem of a study: a configuration, a target, and the strategies that are possible."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outpace.config.cluster_files import BUSY, CALIBRATED, DRAW, INCLUDE
from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from, to_plain
from outpace.errors import ConfigError, did_you_mean
from outpace.experiment.advising.candidates import ALL_REDUCE, BSP, Candidate, candidates, usable
from outpace.experiment.advising.curves import FRESH, Trial
from outpace.experiment.simulating import check
from outpace.experiment.sources import Source, with_interval
from outpace.support.targets import Target
from outpace.support.yaml_files import read_yaml

_PERIODS: Final = ("every_s", "every_updates")  # keys of `evaluate`


@dataclass(frozen=True, slots=True)
class Problem:
    """A configuration with a target.

    Attributes:
        source: the configuration, with the target as its `target`.
        candidates: the strategies that can be used with the configuration.
        left_out: the reasons why other strategies cannot be used, by name.
        rate: the configured learning rate; None: the rate of a trial cannot be set.
        rate_argument: the argument of the script that sets the learning rate.
        is_drawn: the cluster file states errors of its run times, so each fresh seed draws them
            within these errors (`draw_cluster`): the spread over fresh seeds contains the errors.
    """

    source: Source
    target: Target
    candidates: tuple[Candidate, ...]
    left_out: Mapping[str, str]
    rate: float | None
    rate_argument: str | None
    seed: int
    is_drawn: bool = False

    @property
    def data(self) -> dict[str, Any]:
        return self.source.data

    @property
    def workers(self) -> int:
        return int(self.data["workers"])

    @property
    def is_script(self) -> bool:
        task = self.data.get("task")
        return isinstance(task, Mapping) and task.get("kind") == "script"

    @property
    def cluster_files(self) -> list[str]:
        """The absolute paths of the cluster files."""
        names = self.data.get(INCLUDE) or []
        folder = self.source.folder or Path.cwd()
        listed = names if isinstance(names, list) else [names]
        return [str((folder / Path(name).expanduser()).resolve()) for name in listed]

    def with_patience(self, patience_s: float) -> Problem:
        """Return the problem with this wait of partial pushes after their quorum, in seconds."""
        found, left_out = usable(self.data, self.source.name, self.source.folder, patience_s)
        names = {each.name for each in self.candidates}
        kept = tuple(each for each in found if each.name in names)
        return dataclasses.replace(self, candidates=kept, left_out=left_out)

    def candidate(self, name: str) -> Candidate:
        return next(each for each in self.candidates if each.name == name)

    def configured(self, name: str, rate: float) -> dict[str, Any]:
        """Return the configuration with this strategy and learning rate."""
        data = self.candidate(name).applied(self.data)
        if self.rate is None:
            return data
        if self.rate_argument is None:
            return {**data, "optimizer": {**(data.get("optimizer") or {}), "lr": rate}}
        task = dict(data["task"])
        arguments = [str(each) for each in task["arguments"]]
        place, before, _ = _argument(arguments, self.rate_argument)
        arguments[place] = f"{before}{rate!r}"
        return {**data, "task": {**task, "arguments": arguments}}

    def experiment(self, trial: Trial) -> Experiment:
        """Return the experiment of a trial."""
        data = {**self.configured(trial.candidate, trial.rate), "seed": trial.seed}
        if self.is_drawn and trial.part == FRESH:
            data[DRAW] = True
        stop = dict(data.get("stop") or {})
        if math.isfinite(trial.limit_s):
            stop = {"virtual_time_s": trial.limit_s}
        stop.pop("target_accuracy", None)
        if self.target.accuracy is not None:
            stop["target_accuracy"] = self.target.accuracy
        if stop or not self.is_script:
            data["stop"] = stop
        if trial.every_s is not None:
            own = data.get("evaluate") or {}
            kept = {key: value for key, value in own.items() if key not in _PERIODS}
            data["evaluate"] = {**kept, "every_s": trial.every_s}
        name = f"{self.source.name}, with {trial.candidate}"
        experiment = experiment_from(data, name, self.source.folder)
        return with_interval(self.source.with_given(experiment))

    def recommendation(self, name: str, rate: float, every_s: float | None) -> dict[str, Any]:
        """Return the configuration to run: short, with absolute paths.

        If the source stops at a target accuracy, the recommended configuration stops at the target
        of the advice instead.
        """
        data = self.configured(name, rate)
        stop = dict(data.get("stop") or {})
        if stop.pop("target_accuracy", None) is not None:
            own = self.target.accuracy
            data["stop"] = stop if own is None else {**stop, "target_accuracy": own}
        if every_s is not None and not data.get("evaluate"):
            data["evaluate"] = {"every_s": every_s}
        whole = to_plain(experiment_from(data, self.source.name, self.source.folder))
        short = {key: _short(whole[key], data[key]) for key in data if key in whole}
        if paths := self.cluster_files:
            short[INCLUDE] = paths[0] if len(paths) == 1 else paths
        return {key: value for key, value in short.items() if value not in (None, (), [], {})}

    def cluster_notes(self) -> list[str]:
        """Return the notes of the cluster files on other work of the machines at calibration."""
        said = [read_yaml(Path(path)).get(CALIBRATED) or {} for path in self.cluster_files]
        return [str(each[BUSY]) for each in said if BUSY in each]


def problem_of(
    source: Source,
    target: Target,
    rate_argument: str | None = None,
    only: Sequence[str] | None = None,
) -> Problem:
    """Return the problem of a configuration.

    Args:
        only: kinds of strategies to choose from, besides the references; None: all.

    Raises:
        ConfigError: if the configuration cannot be run, has no such target, or no candidate can be
            used with it.
    """
    data = {key: value for key, value in source.data.items() if key not in ("variants", "seeds")}
    goal = {key: value for key, value in dataclasses.asdict(target).items() if value is not None}
    source = source._replace(data={"sync": {"kind": "bsp"}, **data, "target": goal})
    own = source.experiment()
    check(own)
    if own.has_script:
        rate = None if rate_argument is None else _argument(own.script.arguments, rate_argument)[2]
    else:
        if rate_argument is not None:
            raise ConfigError(
                f"--lr-argument {rate_argument}: only a script has arguments; the learning rate "
                "of a configuration is optimizer.lr"
            )
        rate = getattr(own.optimizer, "lr", None)
        if rate is not None and "optimizer" not in source.data:
            kind = {"kind": getattr(own.optimizer, "kind", "sgd")}
            source = source._replace(data={**source.data, "optimizer": kind})
    data = {**source.data, "workers": own.workers}
    source = source._replace(data=data)
    known = {str(one.sync["kind"]) for one in candidates(16)}
    for each in only or ():
        if each not in known:
            raise ConfigError(f"--only: unknown kind {each!r}.{did_you_mean(each, known)}")
    usables, left_out = usable(data, source.name, source.folder)
    chosen = [one for one in usables if only is None or one.sync["kind"] in only]
    found = tuple(one for one in usables if one in chosen or one.name in (BSP, ALL_REDUCE))
    if BSP not in [one.name for one in found] or len(found) < 2 or not chosen:
        reason = left_out.get(BSP) or next(iter(left_out.values()), "there is one worker")
        raise ConfigError(
            f"{source.name}: there is nothing to choose from: too few strategies can be run with "
            f"this configuration: {reason}"
        )
    is_drawn = _states_errors(source)
    return Problem(source, target, found, left_out, rate, rate_argument, own.seed, is_drawn)


def _states_errors(source: Source) -> bool:
    """Return True if a cluster file states errors within which run times can be drawn."""
    try:
        source._replace(data={**source.data, DRAW: True}).experiment()
    except ConfigError:
        return False
    return True


def _argument(arguments: Sequence[object], name: str) -> tuple[int, str, float]:
    """Return the last value of a script's argument: its place, the text before it, and the value.

    The value is the next argument after the name, or follows an equals sign.

    Raises:
        ConfigError: if it is not set, or not to a positive number.
    """
    given = [str(each) for each in arguments]
    for place in reversed(range(len(given))):
        before, is_behind, text = given[place].partition(f"{name}=")
        if not (is_behind and not before):
            if not (place and given[place - 1] == name):
                continue
            is_behind, text = "", given[place]
        with contextlib.suppress(ValueError):
            if 0 < (value := float(text)) < math.inf:
                return place, is_behind, value
        raise ConfigError(f"--lr-argument {name}: {text!r} is not a positive number")
    raise ConfigError(
        f"--lr-argument {name}: the script's arguments do not set it: add it after --, as in "
        f"-- {name} 0.1"
    )


def _short(whole: Any, given: Any) -> Any:
    """Return the given keys with their values in the whole configuration."""
    if isinstance(given, Mapping) and isinstance(whole, Mapping):
        return {key: _short(whole.get(key), value) for key, value in given.items()}
    if isinstance(given, list | tuple) and isinstance(whole, list) and len(given) == len(whole):
        return [_short(one, other) for one, other in zip(whole, given, strict=True)]
    return given if whole is None else whole
