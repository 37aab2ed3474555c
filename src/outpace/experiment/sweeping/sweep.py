"""Sweeps: which values of some keys reach the target first."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from, to_plain
from outpace.errors import ConfigError
from outpace.experiment.simulating import check, workload_of
from outpace.experiment.sources import (
    ExperimentLike,
    Source,
    TaskLike,
    source_of,
    with_interval,
    with_target,
)
from outpace.experiment.sweeping.search import Search
from outpace.experiment.sweeping.space import applied, combinations, dimensions_of, first_valid
from outpace.experiment.sweeping.study import Study, own_journal, quiet
from outpace.experiment.trials.where import On, on_of, pool_on
from outpace.record import folder as files
from outpace.report.sweeps.page import write_sweep_page
from outpace.report.sweeps.result import Candidate, Objective, SweepResult
from outpace.simulation.virtual import Progress
from outpace.support.notices import once, warn
from outpace.support.yaml_files import in_one_line, write_yaml
from outpace.tasks import GivenTask, Script, Timing

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy

_GRID: Final = 64  # largest number of combinations that are all tried, unless fewer are asked for
_TRIALS: Final = 32  # number of candidates of a larger space, without a budget
_MOST_SEEDS: Final = 1000


@dataclass(frozen=True)
class Sweep(SweepResult):
    """The result of a sweep.

    Attributes:
        experiment: experiment of the best candidate; None if no candidate is complete.
        study: the study of Optuna.
        folder: None if the sweep has no folder.
    """

    experiment: Experiment | None
    study: OptunaStudy
    folder: Path | None = None

    def __repr__(self) -> str:
        found = "no complete candidate" if self.best is None else in_one_line(self.best.values)
        return f"<Sweep of {len(self.candidates)} candidates, {self.objective.words}: {found}>"


def sweep(
    experiment: ExperimentLike | Source,
    over: Mapping[str, Any] | Sequence[str],
    /,
    out: str | Path | None = None,
    *,
    trials: int | None = None,
    budget_s: float | None = None,
    seeds: int = 1,
    target_accuracy: float | None = None,
    target_loss: float | None = None,
    prune: bool = True,
    resume: bool = False,
    parallel: int = 8,
    processes: int | None = None,
    on: On = None,
    progress: Progress = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    task: TaskLike | None = None,
    **changes: Any,
) -> Sweep:
    """Try values of some keys in virtual time, and find the best ones.

        outpace.sweep(
            "experiment.yaml",
            {"sync.staleness": [1, 2, 4, 8], "optimizer.lr": "log(0.01, 1)"},
            target_accuracy=0.95,
        )

    All combinations of lists are tried if there are at most 64 (or `trials`); otherwise Optuna's
    TPE sampler proposes candidates. Runs are carried out in parallel, one per core, and candidates
    that cannot win are ended early; see `outpace.experiment.sweeping.search`.

    Args:
        experiment: see `simulate`; `variants` and `seeds` of a comparison are ignored.
        over: values by key of the configuration, such as `sync.staleness`: a list, or a text:
            `log(a, b)`, `uniform(a, b)` or `int(a, b)`. For a script also `args.NAME`. Or texts
            KEY=VALUES.
        out: a new or empty folder for the study, `sweep.json`, `best.yaml` and `report.html`.
        trials: largest number of candidates; None: 32, or until the budget is spent, or all
            combinations.
        budget_s: seconds after which every candidate is stopped.
        seeds: number of runs of each candidate, with the seeds s, s+1, ... of the configuration.
        target_accuracy, target_loss: look for the shortest virtual time to this value; None: the
            target of the configuration, or else the best accuracy (or training loss) at the end.
        prune: False to end no candidate because others were better at the same virtual time.
        resume: continue the study in `out`.
        parallel: number of candidates in a group. The sampler proposes a group from the results of
            earlier groups, so the result depends on this number, but not on `processes`. A script's
            candidates run one after the other.
        processes: largest number of runs at a time; None: one for each core.
        on: where the runs are carried out, see `compare`; `out` is not needed.
        progress: called with the share of candidates that have ended, if their number is known.
        say: called with a text about the method, and a line about each candidate that has ended.
        task, changes: see `simulate`.

    Returns:
        The candidates with their values, and the experiment of the best candidate.

    Raises:
        ConfigError: before anything is run, if the space or the configuration is invalid, or the
            study to be resumed belongs to another configuration.
        KeyboardInterrupt: after the study and the report were written.
    """
    space = dimensions_of(over)
    source, out = source_of(experiment, task, changes), None if out is None else Path(out)
    _check_numbers(trials, budget_s, seeds, parallel)
    if resume and out is None:
        raise ConfigError("resume needs the folder of the study to continue")
    data = {key: value for key, value in source.data.items() if key not in ("variants", "seeds")}
    data = with_target(data, target_accuracy, target_loss)

    def make(values: dict[str, Any]) -> Experiment:
        made = experiment_from(applied(data, values), source.name, source.folder or Path.cwd())
        return with_interval(source.with_given(made))

    reference = first_valid(make, space)
    if reference.seed + seeds > 2**63:
        raise ConfigError(f"seed {reference.seed} leaves no room for {seeds} seeds below 2^63")
    check(reference)
    objective = _objective_of(reference)
    count = combinations(space)
    grid = count is not None and count <= (_GRID if trials is None else trials)
    most = trials if trials is not None or budget_s is not None else _TRIALS
    if grid:
        most = count
    away = on_of(on, reference.launcher)
    if isinstance(reference.task, Script | GivenTask):
        parallel = 1
        processes = 1 if away is None else processes  # on a cluster, one run for each seed
    configuration = {
        **to_plain(reference),
        "over": {each.key: str(each) for each in space},
        "seeds": seeds,
        "prune": prune,
    }
    chosen = f"all {count} combinations" if grid else "candidates of Optuna's TPE sampler"
    method = f"{chosen}, in groups of {parallel}, are tried; what cannot win is ended early"
    swept = {each.key.removeprefix("evaluate.") for each in space}
    if not {"every_s", "every_updates", "evaluate"} & {*swept, *(data.get("evaluate") or {})}:
        method += "; evaluate has no interval, so runs are evaluated about 40 times"
    run_seeds = tuple(reference.seed + later for later in range(seeds))
    said = once(warn)
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet())
        if out is not None and not resume:
            files.require_new(out)
        pool = stack.enter_context(
            pool_on(away, [reference], processes=processes, warning=lambda _, text: said(text))
        )
        if out is not None:
            if not resume:
                files.new_folder(out)
            stack.enter_context(own_journal(out / files.JOURNAL, resume=resume))
        study = Study(
            space,
            objective,
            path=None if out is None else out / files.JOURNAL,
            grid=grid,
            seed=reference.seed % 2**32,
            prune=prune and objective.quantity is not None,
            configuration=configuration,
            resume=resume,
        )
        say(method)

        def ended(each: Candidate) -> None:
            result = each.status if each.value is None else f"{each.value:.4g}"
            say(f"{each.number:4d}  {result:>9}  {each.words}")
            if most is not None:
                progress(len(search.ended) / most)

        most_s = math.inf if budget_s is None else budget_s
        search = Search(
            study, objective, make, pool, run_seeds, most or math.inf, most_s, parallel, ended
        )
        try:
            search.run()
        finally:
            candidates = tuple(sorted(search.ended, key=lambda each: each.number))
            known = source.name, search.status, objective, space, method, run_seeds, candidates
            found = SweepResult(*known, study.spent_s)
            best = None if found.best is None else make(found.best.values)
            if out is not None:
                _write(found, best, out)
    return Sweep(**vars(found), experiment=best, study=study.optuna, folder=out)


def _write(found: SweepResult, experiment: Experiment | None, out: Path) -> None:
    """Write `sweep.json`, `best.yaml` and `report.html`. Raises ConfigError or OSError."""
    files.write_json(out / files.SWEEP, found.to_plain())
    if found.best is not None and experiment is not None:
        comments = (
            f"# The best of {len(found.candidates)} candidates of a sweep, number "
            f"{found.best.number}: {in_one_line(found.best.values)}\n"
            f"# {found.objective.words}: {found.best.value:.6g}\n"
            f"# outpace simulate {shlex.quote(str(out / files.BEST))}\n"
        )
        files.write_text(out / files.BEST, comments + write_yaml(to_plain(experiment)))
    write_sweep_page(found, out / files.REPORT, out / files.BEST)


def _objective_of(experiment: Experiment) -> Objective:
    """Return the objective that the configuration of a sweep asks for.

    Raises:
        ConfigError: if a script has no target, or the task `timing` has one or no iterations.
    """
    target = experiment.goal
    if isinstance(experiment.task, Timing):
        if target is not None:
            raise ConfigError("target.loss: the task timing has no loss; leave the target out")
        if experiment.stop.iterations is None:
            raise ConfigError(
                "stop.iterations is missing: with the task timing the virtual time of the run is "
                "compared, and a run that ends at a given time always takes as long"
            )
        return Objective("time")
    if target is not None:
        return Objective("time-to-target", target)
    if experiment.has_script:
        raise ConfigError(
            "what the script logs is not known before it runs: say what to look for with "
            "--target-accuracy or --target-loss"
        )
    return Objective("accuracy" if workload_of(experiment).has_accuracy else "train_loss")


def _check_numbers(trials: int | None, budget_s: float | None, seeds: int, parallel: int) -> None:
    """Raise ConfigError if a number of candidates, seconds or seeds is invalid."""
    for name, number, most in (
        ("parallel", parallel, math.inf),
        ("trials", 1 if trials is None else trials, math.inf),
        ("seeds", seeds, _MOST_SEEDS),
    ):
        if type(number) is not int or not 1 <= number <= most:
            raise ConfigError(f"{name} must be a whole number from 1 to {most}, not {number!r}")
    if budget_s is not None and not (budget_s > 0 and math.isfinite(budget_s)):
        raise ConfigError(f"the budget must be a positive number of seconds, not {budget_s!r}")
