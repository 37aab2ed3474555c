"""The study of a sweep in Optuna: which candidate comes next, and which is pruned.

The study is kept in a journal file, which optuna-dashboard reads: a write costs 0.5 ms, a tenth of
one to SQLite, and a candidate may be shorter than a second. One sweep writes it at a time. Optuna
locks it for each write with a symbolic link beside it, and waits 30 s before it takes the link of a
process that was killed.

A candidate that was ended early, missed the target, failed or was invalid is a pruned trial: the
sampler then avoids values like its own. It would ignore a failed trial, and propose them again.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from outpace.errors import ConfigError
from outpace.experiment.sweeping.candidates import STEPS, course
from outpace.experiment.trials import Point
from outpace.report.sweeps.result import Candidate, Dimension, Objective
from outpace.support.regular_files import inside
from outpace.support.yaml_files import in_one_line

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
_WRITE_S: Final = 1.0  # optuna-dashboard may write, too: a write takes a millisecond
# Of Optuna's PercentilePruner:
_KEPT: Final = 75.0  # per cent of the candidates that are not pruned
_COMPLETE: Final = 5  # complete candidates before the first is pruned
_LATER: Final = 3  # and those that must have come as far
_WARM_UP: Final = 3  # steps of a run before its candidate may be pruned


class Study:
    """Asks Optuna for candidates and tells it of their ends.

    Args:
        path: the journal (see `own_journal`); None keeps the study in memory.
        grid: True to try every combination once, in an order that the seed decides.
        seed: of the sampler.
        prune: False to prune no candidate.
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
        prune: bool,
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
        pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
        if prune:
            pruner = optuna.pruners.PercentilePruner(
                _KEPT, n_startup_trials=_COMPLETE, n_warmup_steps=_WARM_UP, n_min_trials=_LATER
            )
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
                self._queue_all(seed)

    @property
    def optuna(self) -> OptunaStudy:
        return self._study

    @property
    def _step_s(self) -> float | None:
        """Virtual time between two reports of a candidate, the same for all; None: not known."""
        step_s: float | None = self._study.user_attrs.get("step_s")
        return step_s

    @property
    def spent(self) -> tuple[float, float]:
        """Seconds, and processor time in seconds, of all sessions."""
        wall_s, cpu_s = self._study.user_attrs.get(_SPENT, (0.0, 0.0))
        return wall_s, cpu_s

    @spent.setter
    def spent(self, spent: tuple[float, float]) -> None:
        self._study.set_user_attr(_SPENT, list(spent))

    def ask(self) -> tuple[Trial, dict[str, Any]]:
        """Return a new trial, and its values by key."""
        trial = self._study.ask(self._distributions)
        return trial, {each.key: _value(each, trial.params[each.key]) for each in self._space}

    def keep(self, trial: Trial, candidate: Candidate) -> None:
        """Keep a candidate that has ended but is not told yet, in case this process is killed."""
        trial.set_user_attr(_CANDIDATE, asdict(candidate))

    def give_back(self, trial: Trial) -> None:
        """End a trial whose values are those of one under way; the sampler ignores it."""
        from optuna.trial import TrialState

        trial.set_user_attr(_REPEATED, None)
        self._study.tell(trial, state=TrialState.FAIL)

    def reports(self, points: Sequence[Point]) -> dict[int, float]:
        """Return the course of a run as the study knows it: value by step.

        It is the loss, the accuracy, or for a time to an accuracy the share of wrong answers: a
        study has one direction for the objective and for reports.
        """
        step_s, known = self._step_s, course(points, self._objective)
        if step_s is None or not points:
            return {}
        is_wrong_share = self._objective.quantity == "accuracy" and self._objective.of_time
        found = {}
        for step in range(1, math.floor(points[-1].time_s / step_s * (1 + 1e-9)) + 1):
            until_s = step * step_s * (1 + 1e-9)
            value = next((value for at, value in reversed(known) if at <= until_s), None)
            if value is not None:
                found[step] = 1 - value if is_wrong_share else value
        return found

    def is_pruned(self, points: Sequence[Point]) -> bool:
        """Return True if a candidate whose first run has come so far is to be pruned."""
        from optuna.trial import TrialState, create_trial

        trial = create_trial(state=TrialState.RUNNING, intermediate_values=self.reports(points))
        return trial.last_step is not None and self._study.pruner.prune(self._study, trial)

    def tell(self, trial: Trial, candidate: Candidate, points: Sequence[Point]) -> None:
        """Tell the end of a candidate. points: of its first run."""
        if candidate.status == "complete" and self._step_s is None and candidate.runs[0].time_s > 0:
            self._study.set_user_attr("step_s", candidate.runs[0].time_s / STEPS)
        for step, value in self.reports(points).items():
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

    def _tell(self, trial: Trial | FrozenTrial, candidate: Candidate) -> None:
        from optuna.trial import TrialState

        if candidate.status == "complete":
            self._study.tell(trial.number, candidate.value)
        elif candidate.status == "interrupted":
            self._give_up(trial.number, trial.params)
        else:
            self._study.tell(trial.number, state=TrialState.PRUNED)

    def _give_up(self, number: int, chosen: dict[str, Any]) -> None:
        """End a trial that was interrupted; its values are the next that are asked for."""
        from optuna.trial import TrialState

        self._study.tell(number, state=TrialState.FAIL)
        self._study.enqueue_trial(chosen)

    def _queue_all(self, seed: int) -> None:
        """Queue all combinations, in an order that the seed decides."""
        every = [*itertools.product(*map(_choices, self._space))]
        random.Random(seed).shuffle(every)
        for chosen in every:
            keys = (each.key for each in self._space)
            self._study.enqueue_trial(dict(zip(keys, chosen, strict=True)))

    def _take_up(self) -> None:
        """Read the candidates that have ended; queue those under way when a process was killed."""
        from optuna.trial import TrialState

        for trial in self._study.get_trials(deepcopy=False):
            plain, is_running = trial.user_attrs.get(_CANDIDATE), trial.state == TrialState.RUNNING
            if plain is not None and plain["status"] != "interrupted":
                self.ended.append(Candidate.of(plain))
                if is_running:
                    self._tell(trial, self.ended[-1])
            elif is_running:
                self._give_up(
                    trial.number, trial.params or trial.system_attrs.get("fixed_params", {})
                )


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
    """Return the values of a list for Optuna, which knows numbers and texts only."""
    if all(isinstance(value, _SCALARS) for value in dimension.values):
        return list(dimension.values)
    return list(map(in_one_line, dimension.values))


def _value(dimension: Dimension, chosen: Any) -> Any:
    """Return the value that Optuna has chosen, which knows other values than scalars in words."""
    return chosen if dimension.law else dimension.values[_choices(dimension).index(chosen)]


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


@contextlib.contextmanager
def own_journal(path: Path, *, resume: bool) -> Iterator[None]:
    """Keep other sweeps away from the journal in this block; the end of the process frees it, too.

    Raises ConfigError if there is no journal to resume, or another sweep is at work on it.
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
        _remove_lock(path.with_name(f"{path.name}.lock"))
        _remove_half_line(file)
        yield


def _remove_lock(lock: Path) -> None:
    """Remove the lock of a write that a killed process did not end."""
    with contextlib.suppress(FileNotFoundError):
        left = lock.lstat()
        time.sleep(min(_WRITE_S, max(0.0, left.st_mtime + _WRITE_S - time.time())))
        if lock.lstat().st_ino == left.st_ino:
            lock.unlink()


def _remove_half_line(file: BinaryIO) -> None:
    """Remove what a killed process wrote of its last line: the next one would be appended to it."""
    file.seek(0)
    whole = sum(len(line) for line in file if line.endswith(b"\n"))
    if whole < file.tell():
        file.truncate(whole)
