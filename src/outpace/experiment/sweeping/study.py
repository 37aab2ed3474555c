"""The study of a sweep in Optuna: which candidate comes next.

The study is kept in a journal file, which optuna-dashboard reads: a write costs 0.5 ms, a tenth of
one to SQLite, and a candidate may be shorter than a second.

A candidate that was ended early, missed the target, failed or was invalid is a pruned trial: the
sampler then avoids values like its own. It would ignore a failed trial, and propose them again.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outpace.errors import ConfigError
from outpace.experiment.sweeping.candidate import Candidate
from outpace.experiment.sweeping.objective import Objective
from outpace.experiment.sweeping.space import Choice, Dimension, all_of, in_words

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna import Trial
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

_NAME: Final = "sweep"
_CONFIGURATION, _CANDIDATE, _REPEATED = "configuration", "candidate", "repeated"
_SPENT: Final = "spent_s"
_SCALARS: Final = (bool, int, float, str, type(None))
_STARTUP: Final = 10  # random candidates before the sampler has learned enough


class Study:
    """Asks Optuna for candidates and tells it of their ends.

    Args:
        path: the journal (see `journal.own`); None keeps the study in memory.
        grid: True to try every combination once, in an order that the seed decides.
        seed: of the sampler.
        configuration: plain data that a study to be resumed must agree with.
        resume: continue the study in `path`.

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
        configuration: Mapping[str, Any],
        resume: bool = False,
    ) -> None:
        import optuna
        from optuna.storages.journal import JournalFileBackend

        self._space, self._objective = space, objective
        self._distributions = {each.key: _distribution(each) for each in space}
        self.ended: list[Candidate] = []  # in earlier sessions
        sampler: optuna.samplers.BaseSampler
        if grid:
            sampler = optuna.samplers.RandomSampler(seed=seed)  # all trials are in the queue
        else:
            sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=_STARTUP, constant_liar=True
            )
        pruner = optuna.pruners.NopPruner()  # see `pruning`
        storage = None
        if path is not None:
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
        if resume:
            assert path is not None
            self._study = _loaded(path, storage, sampler, pruner)
            _require_same(self._study.user_attrs.get(_CONFIGURATION), configuration, path)
            self._take_up()
        else:
            directions = optuna.study.StudyDirection
            direction = directions.MAXIMIZE if objective.maximized else directions.MINIMIZE
            self._study = optuna.create_study(
                storage=storage,
                study_name=_NAME,
                direction=direction,
                sampler=sampler,
                pruner=pruner,
            )
            self._study.set_user_attr(_CONFIGURATION, dict(configuration))
        if grid:
            self._queue(seed)

    @property
    def optuna(self) -> OptunaStudy:
        return self._study

    @property
    def step_s(self) -> float | None:
        """Virtual time between two reports of a candidate, the same for all; None: not known."""
        step_s: float | None = self._study.user_attrs.get("step_s")
        return step_s

    @step_s.setter
    def step_s(self, step_s: float) -> None:
        self._study.set_user_attr("step_s", step_s)

    @property
    def spent(self) -> tuple[float, float]:
        """Seconds, and processor time in seconds, of all sessions."""
        wall_s, cpu_s = self._study.user_attrs.get(_SPENT, (0.0, 0.0))
        return wall_s, cpu_s

    @spent.setter
    def spent(self, spent: tuple[float, float]) -> None:
        self._study.set_user_attr(_SPENT, list(spent))

    def completed(self) -> list[FrozenTrial]:
        """Return the complete trials, each candidate once."""
        from optuna.trial import TrialState

        trials = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return [trial for trial in trials if _REPEATED not in trial.user_attrs]

    def ask(self) -> tuple[Trial, dict[str, Any]]:
        """Return a new trial, and its values by key."""
        trial = self._study.ask(self._distributions)
        return trial, self._values(trial.params)

    def keep(self, trial: Trial, candidate: Candidate) -> None:
        """Keep a candidate that has ended but is not told yet, in case this process is killed."""
        trial.set_user_attr(_CANDIDATE, candidate.plain())

    def give_back(self, trial: Trial) -> None:
        """End a trial whose values are those of one under way; the sampler ignores it."""
        from optuna.trial import TrialState

        trial.set_user_attr(_REPEATED, None)
        self._study.tell(trial, state=TrialState.FAIL)

    def tell(self, trial: Trial, candidate: Candidate, reports: Mapping[int, float]) -> None:
        """Tell the course of a candidate, by step, and its end."""
        for step, value in reports.items():
            trial.report(value, step)
        trial.set_user_attr("status", candidate.status)
        if candidate.error is not None:
            trial.set_user_attr("error", candidate.error)
        self.keep(trial, candidate)
        self._tell(trial, candidate)

    def tell_again(self, trial: Trial, known: Candidate) -> None:
        """Tell the result of a candidate that the sampler has proposed a second time."""
        trial.set_user_attr(_REPEATED, known.number)
        self._tell(trial, known)

    def _tell(self, trial: Trial | int, candidate: Candidate) -> None:
        from optuna.trial import TrialState

        if candidate.status == "complete":
            self._study.tell(trial, candidate.value)
        elif candidate.status == "interrupted":
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, state=TrialState.PRUNED)

    def _values(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for each in self._space:
            value = chosen[each.key]
            if isinstance(each, Choice):
                words = [*map(in_words, _choices(each))]
                value = each.values[words.index(in_words(value))]
            found[each.key] = value
        return found

    def _chosen(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of lists as Optuna knows them."""
        found = {}
        for each in self._space:
            assert isinstance(each, Choice)
            words = [*map(in_words, each.values)]
            found[each.key] = _choices(each)[words.index(in_words(values[each.key]))]
        return found

    def _queue(self, seed: int) -> None:
        """Queue the combinations that are not in the study yet."""
        there = {_key(trial) for trial in self._study.get_trials(deepcopy=False)}
        missing = [
            chosen
            for values in all_of(self._space)
            if json.dumps(chosen := self._chosen(values), sort_keys=True) not in there
        ]
        random.Random(seed).shuffle(missing)
        for chosen in missing:
            self._study.enqueue_trial(chosen)

    def _take_up(self) -> None:
        """Read the candidates that have ended; queue those that were interrupted."""
        from optuna.trial import TrialState

        again: list[int] = self._study.user_attrs.get("queued_again", [])
        for trial in self._study.get_trials(deepcopy=False):
            plain = trial.user_attrs.get(_CANDIDATE)
            running = trial.state == TrialState.RUNNING  # the process was killed
            if plain is not None and plain["status"] != "interrupted":
                candidate = Candidate.of(plain)
                self.ended.append(candidate)
                if running:
                    self._tell(trial.number, candidate)
                continue
            if running:
                self._study.tell(trial.number, state=TrialState.FAIL)
            elif trial.state != TrialState.FAIL or _REPEATED in trial.user_attrs:
                continue
            if trial.number not in again:
                again = [*again, trial.number]
                self._study.set_user_attr("queued_again", again)
                if trial.params:
                    self._study.enqueue_trial(trial.params)


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

    if isinstance(dimension, Choice):
        return CategoricalDistribution(_choices(dimension))
    if dimension.law == "int":
        return IntDistribution(int(dimension.low), int(dimension.high))
    return FloatDistribution(dimension.low, dimension.high, log=dimension.law == "log")


def _choices(choice: Choice) -> list[Any]:
    """Return the values of a list for Optuna, which knows numbers and texts only."""
    if all(isinstance(value, _SCALARS) for value in choice.values):
        return list(choice.values)
    return [in_words(value) for value in choice.values]


def _key(trial: FrozenTrial) -> str:
    """Return the values of a trial, which may still be in the queue."""
    chosen = trial.params or trial.system_attrs.get("fixed_params", {})
    return json.dumps(chosen, sort_keys=True)


def _loaded(path: Path, storage: Any, sampler: Any, pruner: Any) -> OptunaStudy:
    import optuna

    try:
        return optuna.load_study(study_name=_NAME, storage=storage, sampler=sampler, pruner=pruner)
    except (KeyError, ValueError) as error:
        raise ConfigError(f"{path} is not the study of a sweep: {error}") from error


def _require_same(found: Any, wanted: Mapping[str, Any], path: Path) -> None:
    """Raise ConfigError unless a study was made with this configuration."""
    found = found if isinstance(found, dict) else {}
    as_kept = json.loads(json.dumps(wanted))
    if found == as_kept:
        return
    differs = [key for key in wanted if found.get(key) != as_kept[key]]
    was, now = found.get("experiment"), as_kept["experiment"]
    if "experiment" in differs and isinstance(was, dict):
        keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
        differs = [*(key for key in differs if key != "experiment"), *keys]
    raise ConfigError(
        f"{path} is the study of another configuration, it differs in {', '.join(differs)}: "
        "resume with the configuration that it was made with, or choose another --out"
    )
