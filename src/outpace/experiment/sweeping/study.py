"""The study of a sweep in Optuna: which candidate comes next, and which is pruned.

The study is kept in a journal file, which optuna-dashboard reads: a write costs 0.5 ms, a tenth of
one to SQLite, and a candidate may be shorter than a second. One sweep writes it at a time.

A candidate that was ended early, missed the target, failed or was invalid is a pruned trial: then
the sampler avoids similar values. It would ignore a failed trial, and propose its values again.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outpace.errors import ConfigError
from outpace.report.sweeps.result import Candidate, Dimension, Objective
from outpace.support.regular_files import inside
from outpace.support.yaml_files import in_one_line

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna import Trial
    from optuna.distributions import BaseDistribution

_NAME: Final = "sweep"
# Attributes of the study, and of a trial.
_CONFIGURATION, _SPENT, _STEP = "configuration", "spent_s", "step_s"
_CANDIDATE: Final = "candidate"
_STEPS: Final = 32  # number of reports of a run that takes as long as the first complete one
_STARTUP: Final = 10  # number of random candidates before the sampler has learned enough
# Of Optuna's PercentilePruner:
_KEPT: Final = 75.0  # percentage of the candidates that are not pruned
_COMPLETE: Final = 5  # number of complete candidates before the first one is pruned
_LATER: Final = 3  # number of these that must have run as long
_WARM_UP: Final = 3  # number of steps of a run before its candidate may be pruned


class Study:
    """Asks Optuna for candidates and tells it of their ends.

    Args:
        path: the journal (see `own_journal`); None: the study is in memory.
        grid: True to try every combination once, in an order that the seed decides.
        seed: seed of the sampler.
        prune: False to prune no candidate.
        configuration: plain data that a study to be resumed must agree with.
        resume: continue the study in `path`.

    Attributes:
        optuna: the study.
        ended: candidates of earlier sessions.

    Raises:
        ConfigError: if the file has no study, or one of another configuration.
    """

    def __init__(
        self,
        space: Sequence[Dimension],
        objective: Objective,
        *,
        path: Path | None,
        grid: bool,
        seed: int,
        prune: bool,
        configuration: Mapping[str, Any],
        resume: bool = False,
    ) -> None:
        import optuna
        from optuna.storages.journal import JournalFileBackend

        self._space, self._objective = space, objective
        self._distributions = {each.key: _distribution(each) for each in space}
        self.ended: list[Candidate] = []
        sampler: optuna.samplers.BaseSampler
        if grid:
            sampler = optuna.samplers.RandomSampler(seed=seed)  # all trials are in the queue
        else:
            sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=_STARTUP, constant_liar=True
            )
        pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
        if prune:
            pruner = optuna.pruners.PercentilePruner(
                _KEPT, n_startup_trials=_COMPLETE, n_warmup_steps=_WARM_UP, n_min_trials=_LATER
            )
        storage = None
        if path is not None:
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
        self.optuna: OptunaStudy = optuna.create_study(
            storage=storage,
            study_name=_NAME,
            direction="maximize" if objective.maximized else "minimize",
            sampler=sampler,
            pruner=pruner,
            load_if_exists=resume,
        )
        if resume:
            _require_same(self.optuna.user_attrs.get(_CONFIGURATION), configuration, path)
            self._take_up()
            return
        self.optuna.set_user_attr(_CONFIGURATION, dict(configuration))
        if grid:
            every = [*itertools.product(*map(_choices, space))]
            random.Random(seed).shuffle(every)
            for chosen in every:
                keys = (each.key for each in space)
                self.optuna.enqueue_trial(dict(zip(keys, chosen, strict=True)))

    def _take_up(self) -> None:
        """Read the candidates that have ended; queue those under way when a process was killed."""
        from optuna.trial import TrialState

        for trial in self.optuna.get_trials(deepcopy=False):
            if (plain := trial.user_attrs.get(_CANDIDATE)) is not None:
                self.ended.append(msgspec.convert(plain, Candidate))
            elif trial.state == TrialState.RUNNING:
                chosen = trial.params or trial.system_attrs.get("fixed_params", {})
                self.give_up(trial.number, chosen)

    @property
    def spent_s(self) -> float:
        """Seconds that all sessions of the sweep have taken."""
        return float(self.optuna.user_attrs.get(_SPENT, 0.0))

    @spent_s.setter
    def spent_s(self, spent_s: float) -> None:
        self.optuna.set_user_attr(_SPENT, spent_s)

    def ask(self) -> tuple[Trial, dict[str, Any]]:
        """Return a new trial, and its values by key."""
        trial = self.optuna.ask(self._distributions)
        return trial, {each.key: _value(each, trial.params[each.key]) for each in self._space}

    def is_pruned(self, course: Sequence[tuple[float, float]], until_s: float) -> bool:
        """Return True if a candidate whose first run has come so far is to be pruned.

        Args:
            course: times of evaluations, and their values of the objective's quantity.
            until_s: virtual time of the last evaluation.
        """
        from optuna.trial import TrialState, create_trial

        reports = self._reports(course, until_s)
        trial = create_trial(state=TrialState.RUNNING, intermediate_values=reports)
        return bool(reports) and self.optuna.pruner.prune(self.optuna, trial)

    def _reports(self, course: Sequence[tuple[float, float]], until_s: float) -> dict[int, float]:
        """Return the course of a run as the study knows it: value by step.

        A step is the same virtual time for all candidates. The value is the loss, the accuracy, or
        for a time to an accuracy the share of wrong answers: a study has one direction for the
        objective and for reports.
        """
        step_s: float | None = self.optuna.user_attrs.get(_STEP)
        if step_s is None:
            return {}
        is_wrong_share = self._objective.quantity == "accuracy" and self._objective.is_time
        found = {}
        for step in range(1, math.floor(until_s / step_s * (1 + 1e-9)) + 1):
            at_s = step * step_s * (1 + 1e-9)
            value = next((value for time_s, value in reversed(course) if time_s <= at_s), None)
            if value is not None:
                found[step] = 1 - value if is_wrong_share else value
        return found

    def tell(
        self,
        trial: Trial,
        candidate: Candidate,
        course: Sequence[tuple[float, float]] = (),
        until_s: float = 0.0,
    ) -> None:
        """Report the result of a candidate to Optuna.

        Args:
            candidate: the result; its number differs if the sampler proposed values again that
                another trial had.
            course, until_s: course of the candidate's first run, and its end, see `is_pruned`.
        """
        from optuna.trial import TrialState

        is_complete = candidate.status == "complete"
        if is_complete and _STEP not in self.optuna.user_attrs and candidate.runs[0].time_s > 0:
            self.optuna.set_user_attr(_STEP, candidate.runs[0].time_s / _STEPS)
        for step, value in self._reports(course, until_s).items():
            trial.report(value, step)
        trial.set_user_attr("status", candidate.status)
        if candidate.number == trial.number:
            trial.set_user_attr(_CANDIDATE, msgspec.to_builtins(candidate))
        state = TrialState.COMPLETE if is_complete else TrialState.PRUNED
        self.optuna.tell(trial, candidate.value, state)

    def give_up(self, number: int, chosen: dict[str, Any]) -> None:
        """End a trial without a result; its values are proposed next."""
        from optuna.trial import TrialState

        self.optuna.tell(number, state=TrialState.FAIL)
        self.optuna.enqueue_trial(chosen)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from logging each trial in this block."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def _distribution(dimension: Dimension) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not dimension.law:
        return CategoricalDistribution(_choices(dimension))
    low, high = dimension.values
    if dimension.law == "int":
        return IntDistribution(low, high)
    return FloatDistribution(low, high, log=dimension.law == "log")


def _choices(dimension: Dimension) -> list[Any]:
    """Return the values of a list for Optuna, which accepts only numbers and texts."""
    if all(isinstance(value, bool | int | float | str | None) for value in dimension.values):
        return list(dimension.values)
    return list(map(in_one_line, dimension.values))


def _value(dimension: Dimension, chosen: Any) -> Any:
    """Return the value that Optuna has chosen; values other than scalars are stored as text."""
    return chosen if dimension.law else dimension.values[_choices(dimension).index(chosen)]


def _require_same(found: Any, wanted: Mapping[str, Any], path: Path | None) -> None:
    """Raise ConfigError unless a study was made with this configuration."""
    if not isinstance(found, dict):
        raise ConfigError(f"{path} is not the study of a sweep")
    given = json.loads(json.dumps(wanted))
    differs = [key for key in {**found, **given} if found.get(key) != given.get(key)]
    if differs:
        raise ConfigError(
            f"{path} is the study of another configuration, it differs in {', '.join(differs)}: "
            "resume with the configuration that it was made with, or choose another --out"
        )


@contextlib.contextmanager
def own_journal(path: Path, *, resume: bool) -> Iterator[None]:
    """Lock the journal in this block; the end of the process also releases it.

    Raises ConfigError if there is no journal to resume, or if another sweep uses it.
    """
    if resume and not path.is_file():
        raise ConfigError(f"{path.parent} has no {path.name}: there is no study to resume")
    with open(path, "ab+", opener=inside) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another sweep is at work on {path}: wait until it ends, or choose another --out"
            ) from None
        # A killed process may have written half a line, to which the next line would be appended.
        file.seek(0)
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
        yield
