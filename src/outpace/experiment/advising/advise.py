"""`outpace.advise`: which strategy reaches a target soonest here, and how sure that is."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outpace.config.cluster_files import INCLUDE, with_cluster
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError, RunError
from outpace.experiment.advising.judging.found import Found
from outpace.experiment.advising.judging.known import (
    PredictionError,
    prediction_error,
    reason_without,
)
from outpace.experiment.advising.progress import State
from outpace.experiment.advising.question.curves import Goal, Trial
from outpace.experiment.advising.question.problem import Problem, problem_of
from outpace.experiment.advising.question.targets import goal_of
from outpace.experiment.advising.recording import recorded_cluster, recorded_only
from outpace.experiment.advising.results import advice_of
from outpace.experiment.advising.study import Study
from outpace.experiment.advising.verifying import VERIFY_S, verified
from outpace.experiment.sources import Source, TaskLike, folder_of, source_of
from outpace.experiment.trials import Pool
from outpace.experiment.trials.where import On, check_on, runs_on
from outpace.record import folder as files
from outpace.record.folder import ADVICE
from outpace.report.advice.page import write_advice_page
from outpace.report.advice.words import sentences
from outpace.report.explaining import explained
from outpace.report.words import listed
from outpace.support.checks import positive
from outpace.support.estimates import Estimate
from outpace.support.notices import warn
from outpace.support.regular_files import read_text
from outpace.support.yaml_files import write_yaml

RECOMMENDED: Final = "recommended.yaml"
LIKELY: Final = "likely.yaml"
_BSP: Final = "bsp"  # folder of BSP's run, whose trace is kept
_MOST_SEEDS: Final = 1000
_MOST_CAUSES: Final = 3


@dataclass(frozen=True)
class Advice:
    """The advice of a study.

    Attributes:
        data: the content of advice.json.
        folder: of its files; None if they were not written.
    """

    data: Mapping[str, Any]
    folder: Path | None = None

    @property
    def strategy(self) -> str:
        """`sync.kind` of the recommended strategy."""
        return str(self.data["strategy"])

    @property
    def recommendation(self) -> dict[str, Any]:
        """The configuration to run."""
        return dict(self.data["recommendation"])

    @property
    def speedup_over_bsp(self) -> Estimate:
        return Estimate(**self.data["speedup_over_bsp"])

    @property
    def distinguishable(self) -> bool:
        """Whether the strategy is reliably better than BSP."""
        return bool(self.data["distinguishable"])

    def __repr__(self) -> str:
        return "\n".join(["Advice:", *(f"  {each}" for each in sentences(self.data))])


def advise(
    experiment: Experiment | Mapping[str, Any] | str | Path,
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
    verify: bool = False,
    processes: int | None = None,
    on: On = None,
    say: Callable[[str], None] = lambda _: None,
    show: Callable[[State], None] = lambda _: None,
    task: TaskLike | None = None,
    **changes: Any,
) -> Advice:
    """Return which strategy reaches the target soonest, by simulating about 24 of them.

    Learning rates and finalists are searched on some seeds; the finalists, BSP and all-reduce are
    then run on fresh ones.

    Args:
        experiment: an Experiment, plain data, or the path of a YAML file.
        out: folder for recommended.yaml, advice.json and report.html; new, empty, or with the
            advice of the same study.
        target_accuracy, target_loss: the target; at most one of them. None: the experiment's
            `target`.
        budget_s: seconds after which the answer so far is given; None: until it is complete.
        seeds: number of fresh seeds, at least 2.
        cluster: a cluster file, whose keys replace those of the experiment.
        lr_argument: the argument of a script that sets its learning rate, such as `--lr`; without
            it, all candidates run a script with its own.
        only: kinds of strategies to choose from, beside BSP and all-reduce; None: all.
        verify: also run the best three on real processes, for a minute each.
        processes: most runs at a time; None: one for each core.
        on: where the runs in virtual time are carried out, as for `compare`; `out` is not needed.
        say: called with provisional answers.
        show: called with how far the study has come.
        task, changes: as for `simulate`.

    Raises:
        ConfigError: before anything is run.
        RunError: if no run reached the target, or the budget is too small for one run.
        KeyboardInterrupt: after the answer so far was written to `out`.
    """
    source = source_of(experiment, task, changes)
    return advised(
        source,
        folder_of(out),
        goal=goal_of(target_accuracy, target_loss, source.data.get("target")),
        budget_s=budget_s,
        seeds=seeds,
        cluster=cluster,
        lr_argument=lr_argument,
        only=only,
        verify=verify,
        processes=processes,
        on=on,
        say=say,
        show=show,
    )


def advised(
    source: Source,
    folder: Path | None,
    *,
    goal: Goal,
    budget_s: float | None,
    seeds: int,
    cluster: str | Path | None,
    lr_argument: str | None,
    only: Sequence[str] | None,
    verify: bool,
    processes: int | None,
    on: On,
    say: Callable[[str], None],
    show: Callable[[State], None] = lambda _: None,
) -> Advice:
    """Return the advice for the configuration of a source; see `advise`."""
    if type(seeds) is not int or not 2 <= seeds <= _MOST_SEEDS:
        raise ConfigError(f"seeds must be from 2 to {_MOST_SEEDS}, not {seeds!r}")
    if budget_s is not None and not positive(budget_s):
        raise ConfigError(f"the budget must be a positive number of seconds, not {budget_s!r}")
    if cluster is not None:
        source = source._replace(data=with_cluster(source.data, cluster))
    asked = _asked(source, goal, seeds, [lr_argument, only])
    if folder is not None:
        _require_folder(folder, asked)
    launcher = source.data.get("launcher")
    check_on(on, launcher)
    if source.data.get("compute") is None and source.data.get(INCLUDE) is None:
        # Before this process is connected to the cluster of `on`, since Ray takes it into no other:
        # the recording is made where the launcher of the configuration says.
        show(State("recording", 0, 1, None))
        source = recorded_cluster(source, folder, say)
    problem = problem_of(source, goal, lr_argument, only)
    with runs_on(on, launcher) as away:
        trace = None if folder is None else folder / _BSP
        interrupted = False
        elsewhere = None
        if away is not None:
            first = problem.source.experiment()
            elsewhere = away.carrier([first], processes=processes, have_folders=False)
        warned: dict[str, set[str]] = {}  # what many runs say alike, and whose runs

        def warning(key: Hashable, text: str) -> None:
            if text not in warned:
                warn(text)
            own = warned.setdefault(text, set())
            if isinstance(key, Trial):
                own.add(key.candidate)

        with Pool(processes, warning=warning, elsewhere=elsewhere) as pool:
            study = Study(
                problem,
                pool,
                seeds=seeds,
                budget_s=budget_s,
                folder=_free(trace),
                say=say,
                show=show,
            )
            try:
                found = study.run()
                error = prediction_error(study.problem, found, pool)
            except KeyboardInterrupt:
                if study.found is None or study.found.search.best_curve is None:
                    raise
                found, interrupted = study.found, True
                reason = reason_without(study.problem, found) or "the study was interrupted"
                error = PredictionError(reason=reason)
    problem = study.problem
    data = {**_data(problem, found, error, folder, asked), "warnings": _named(warned, problem)}
    if interrupted:
        _written(data, folder)
        raise KeyboardInterrupt
    if verify:
        _written(data, folder)
        say(f"on real processes, {VERIFY_S:g} s for each strategy at most")
        data = {**data, "verified": verified(problem, found, data, say, show)}
    return _written(data, folder)


def _named(warned: Mapping[str, set[str]], problem: Problem) -> list[str]:
    """Return the warnings of the runs, each behind the candidates that had it, in their order."""
    found = []
    for text, names in sorted(warned.items()):
        own = listed([each.name for each in problem.candidates if each.name in names])
        found.append(f"{own}: {text}" if own else text)
    return found


def _asked(source: Source, goal: Goal, seeds: int, options: list[Any]) -> dict[str, Any]:
    """Return what tells one study from another: the configuration, as plain data."""
    data = {key: value for key, value in source.data.items() if key != "task"}
    data["task"] = source.data["task"] if source.given is None else source.given.name
    target = [goal.accuracy, goal.loss]
    text = json.dumps([data, target, seeds, options], default=str, sort_keys=True)
    found: dict[str, Any] = {"study": json.loads(text)}
    return found


def _require_folder(folder: Path, asked: Mapping[str, Any]) -> None:
    """Raise ConfigError unless the folder is new, empty, or has the advice of this study."""
    path = folder / ADVICE
    if not path.is_file():
        if not recorded_only(folder):
            files.require_new(folder)
        return
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if json.loads(read_text(path)).get("study") == asked["study"]:
            return
    raise ConfigError(
        f"{folder} has the advice of another study, with another configuration, target or number "
        "of seeds: choose another --out"
    )


def _free(folder: Path | None) -> Path | None:
    """Return the folder unless it is there already, from the study before."""
    return None if folder is None or folder.exists() else folder


def _data(
    problem: Problem,
    found: Found,
    error: PredictionError,
    folder: Path | None,
    asked: Mapping[str, Any],
) -> dict[str, Any]:
    verb = "run" if problem.is_script or problem.data.get("compute") is None else "simulate"
    command = f"outpace {verb} {(folder or Path()) / RECOMMENDED}"
    data = advice_of(problem, found, error=error, command=command)
    return {**_finite({**data, "causes": _causes(found.folder)}), **asked}


def _causes(folder: Path | None) -> list[dict[str, Any]]:
    """Return what slows BSP, from its run on the first fresh seed."""
    if folder is None:
        return []
    try:
        causes = explained(folder).causes
    except ConfigError:
        return []
    return [
        {
            "name": each.name,
            "pattern": each.pattern,
            "factor": each.factor,
            "lost_s": each.lost_s,
            "share": each.share,
        }
        for each in causes[:_MOST_CAUSES]
    ]


def _finite(value: Any) -> Any:
    """Return plain data in which numbers that JSON does not have are None."""
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _written(data: dict[str, Any], folder: Path | None) -> Advice:
    """Write the files and return the advice. Raises RunError if they cannot be written."""
    if folder is None:
        return Advice(data)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        notes = [f"# {line}\n" for sentence in sentences(data) for line in sentence.splitlines()]
        text = "".join(notes) + write_yaml(data["recommendation"])
        files.write_text(folder / RECOMMENDED, text)
        if data["likely"] is None:
            (folder / LIKELY).unlink(missing_ok=True)
        else:
            text = "".join(notes) + write_yaml(data["likely"]["recommendation"])
            files.write_text(folder / LIKELY, text)
        files.write_json(folder / ADVICE, data)
        write_advice_page(data, folder / files.REPORT)
    except (OSError, ConfigError) as fault:
        raise RunError(f"cannot write the advice to {folder}: {fault}") from fault
    return Advice(data, folder)
