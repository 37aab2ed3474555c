"""`outpace.advise`: which strategy reaches a target soonest, and how certain that is."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shlex
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outpace.config.cluster_files import INCLUDE, with_cluster
from outpace.errors import ConfigError, RunError
from outpace.experiment.advising.curves import Trial
from outpace.experiment.advising.problem import Problem, problem_of
from outpace.experiment.advising.recording import recorded_cluster, recorded_only
from outpace.experiment.advising.results import advice_of
from outpace.experiment.advising.runner import Budget, Show
from outpace.experiment.advising.statistics import MIN_GAIN
from outpace.experiment.advising.study import Study
from outpace.experiment.sources import (
    ExperimentLike,
    Source,
    TaskLike,
    source_of,
    with_target,
)
from outpace.experiment.trials.where import On, on_of, pool_on
from outpace.record import folder as files
from outpace.record.folder import ADVICE
from outpace.report.advice.page import write_advice_page
from outpace.report.advice.result import AdviceResult
from outpace.report.advice.words import sentences
from outpace.report.words import listed
from outpace.support.checks import LARGEST
from outpace.support.notices import warn
from outpace.support.regular_files import read_text
from outpace.support.targets import Target
from outpace.support.yaml_files import write_yaml

RECOMMENDED: Final = "recommended.yaml"
_MOST_SEEDS: Final = 1000
_MOST_GAIN: Final = 10.0


@dataclass(frozen=True, repr=False)
class Advice(AdviceResult):
    """The advice of a study.

    Attributes:
        folder: the folder of its files; None if they were not written.
    """

    folder: Path | None = None

    @property
    def data(self) -> dict[str, Any]:
        """The content of advice.json."""
        return self.plain()

    def __repr__(self) -> str:
        return "\n".join(["Advice:", *(f"  {each}" for each in sentences(self))])


class Interrupted(KeyboardInterrupt):
    """Raised if the study was interrupted; the answer so far is written."""

    def __init__(self, advice: Advice) -> None:
        super().__init__("interrupted")
        self.advice = advice


def advise(
    experiment: ExperimentLike | Source,
    /,
    out: str | Path | None = None,
    *,
    target_accuracy: float | None = None,
    target_loss: float | None = None,
    budget_s: float | None = None,
    seeds: int = 8,
    cluster: str | Path | None = None,
    lr_argument: str | None = None,
    only: Sequence[str] | None = None,
    min_gain: float = MIN_GAIN,
    processes: int | None = None,
    on: On = None,
    say: Callable[[str], None] = lambda _: None,
    show: Show = lambda *_: None,
    task: TaskLike | None = None,
    **changes: Any,
) -> Advice:
    """Return which strategy reaches the target soonest, by simulating about 24 of them.

        advice = outpace.advise("experiment.yaml", target_accuracy=0.95, out="advice")

    Learning rates and finalists are searched on some seeds; the finalists, BSP and all-reduce are
    then run on fresh seeds.

    Args:
        experiment: an Experiment, plain data, or the path of a YAML file.
        out: folder for recommended.yaml, advice.json and report.html; it must be new, empty, or
            have the advice of the same study.
        target_accuracy, target_loss: the target; at most one of them. None: the experiment's
            `target`.
        budget_s: seconds after which the answer so far is given; None: the study is completed.
        seeds: number of fresh seeds, at least 2.
        cluster: a cluster file, whose keys replace the keys of the experiment.
        lr_argument: the argument of a script that sets its learning rate, such as `--lr`; without
            it, all candidates run a script with the script's own rate.
        only: kinds of strategies to choose from, besides BSP and all-reduce; None: all.
        min_gain: the least gain over BSP, as a share, for which another strategy is recommended.
        processes: largest number of runs at a time; None: one for each core.
        on: where the runs in virtual time are carried out, as for `compare`; `out` is not needed.
        say: called with provisional answers.
        show: called with the phase, the number of runs that have ended, and the number planned for
            all phases.
        task, changes: see `simulate`.

    Raises:
        ConfigError: before anything is run.
        RunError: if no run reached the target, or the budget is too small for one run.
        Interrupted: a KeyboardInterrupt, raised after the answer so far was written to `out`.
    """
    source = experiment if isinstance(experiment, Source) else source_of(experiment, task, changes)
    folder = None if out is None else Path(out)
    source = source._replace(data=with_target(source.data, target_accuracy, target_loss))
    target = _target(source.data)
    if type(seeds) is not int or not 2 <= seeds <= _MOST_SEEDS:
        raise ConfigError(f"seeds must be from 2 to {_MOST_SEEDS}, not {seeds!r}")
    if budget_s is not None and not 0 < budget_s <= LARGEST:
        raise ConfigError(f"the budget must be a positive number of seconds, not {budget_s!r}")
    if not isinstance(min_gain, int | float) or not 0 <= min_gain <= _MOST_GAIN:
        raise ConfigError(f"the least gain must be from 0 to {_MOST_GAIN:g}, not {min_gain!r}")
    if cluster is not None:
        source = source._replace(data=with_cluster(source.data, cluster))
    asked = _asked(source, target, seeds, [lr_argument, only, min_gain])
    if folder is not None:
        _require_folder(folder, asked)
    away = on_of(on, source.data.get("launcher"))
    if source.data.get("compute") is None and source.data.get(INCLUDE) is None:
        if folder is None:
            raise ConfigError(
                "compute is missing: give a law of run times, a cluster file (cluster), or a "
                "folder (out) for the recording of some real steps"
            )
        # This comes before the connection to the cluster of `on`, since Ray connects a process to
        # only one cluster: the recording is made where the launcher of the configuration says.
        show("recording", 0, 1)
        source = recorded_cluster(source, folder, say)
    problem = problem_of(source, target, lr_argument, only)
    # warnings that many runs give, and the candidates of these runs
    warnings: dict[str, set[str]] = {}

    def warning(key: Hashable, text: str) -> None:
        if text not in warnings:
            warn(text)
        names = warnings.setdefault(text, set())
        names |= {key.candidate} if isinstance(key, Trial) else set()

    experiments = [problem.source.experiment()]
    with pool_on(away, experiments, processes=processes, warning=warning) as pool:
        budget = Budget(math.inf if budget_s is None else budget_s, show)
        study = Study(problem, pool, seeds=seeds, budget=budget, say=say)
        status = "interrupted"
        with contextlib.suppress(KeyboardInterrupt):
            study.run()
            status = "budget" if budget.is_cut else "complete"
    found = study.found
    if found is None or found.best_s() is None:
        raise KeyboardInterrupt
    result = dataclasses.replace(
        advice_of(found, min_gain),
        status=status,
        command=_command(problem, folder),
        more_s=None if status == "complete" else budget.missing_s,
        elapsed_s=round(budget.elapsed_s, 3),
        warnings=_named(warnings, problem),
        study=asked,
    )
    advice = _written(result, folder)
    if status == "interrupted":
        raise Interrupted(advice)
    return advice


def _target(data: Mapping[str, Any]) -> Target:
    """Return the target of a configuration. Raises ConfigError."""
    given = data.get("target") or {}
    try:
        return Target(**given)
    except (TypeError, ValueError) as error:
        remedy = (
            ": give exactly one target, an accuracy or a loss: --target-accuracy or --target-loss "
            "(in Python target_accuracy or target_loss), or target in the configuration"
        )
        is_one = isinstance(error, ValueError) and len(given) == 1
        raise ConfigError(f"target: {error}{'' if is_one else remedy}") from None


def _named(warned: Mapping[str, set[str]], problem: Problem) -> tuple[str, ...]:
    """Return the warnings of the runs, each after the names of the candidates that had it."""
    found = []
    for text, names in sorted(warned.items()):
        own = listed([each.name for each in problem.candidates if each.name in names])
        found.append(f"{own}: {text}" if own else text)
    return tuple(found)


def _asked(source: Source, target: Target, seeds: int, options: list[Any]) -> Any:
    """Return the plain data that distinguish one study from another."""
    data = {key: value for key, value in source.data.items() if key != "task"}
    data["task"] = source.data["task"] if source.given is None else source.given.name
    asked = [data, dataclasses.asdict(target), seeds, options]
    return json.loads(json.dumps(asked, default=str, sort_keys=True))


def _require_folder(folder: Path, asked: Any) -> None:
    """Raise ConfigError unless the folder is new, empty, or has the advice of this study."""
    path = folder / ADVICE
    if not path.is_file():
        if not recorded_only(folder):
            files.require_new(folder)
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if json.loads(read_text(path)).get("study") == asked:
            return
    raise ConfigError(
        f"{folder} has the advice of another study, with another configuration, target or number "
        "of seeds: choose another --out"
    )


def _command(problem: Problem, folder: Path | None) -> str:
    """Return the command that runs the recommendation; empty if it is not written."""
    if folder is None:
        return ""
    verb = "run" if problem.is_script or problem.data.get("compute") is None else "simulate"
    return f"outpace {verb} {shlex.quote(str(folder / RECOMMENDED))}"


def _written(result: AdviceResult, folder: Path | None) -> Advice:
    """Write the files and return the advice. Raises RunError if they cannot be written."""
    if folder is None:
        return Advice(**vars(result))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        notes = [f"# {line}\n" for sentence in sentences(result) for line in sentence.splitlines()]
        text = "".join(notes) + write_yaml(result.recommendation)
        files.write_text(folder / RECOMMENDED, text)
        files.write_json(folder / ADVICE, result.plain())
        try:
            write_advice_page(result, folder / files.REPORT)
        except KeyboardInterrupt:  # the page takes a second, and the answer is there
            raise Interrupted(Advice(**vars(result), folder=folder)) from None
    except (OSError, ConfigError) as fault:
        raise RunError(f"cannot write the advice to {folder}: {fault}") from fault
    return Advice(**vars(result), folder=folder)
