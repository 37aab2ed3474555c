"""Sweeps: which values of some keys reach the target first?"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from outpace.config.experiment import Experiment
from outpace.config.reading import experiment_from, to_plain
from outpace.errors import ConfigError
from outpace.experiment import display
from outpace.experiment.intervals import interval_words, with_interval
from outpace.experiment.simulating import check
from outpace.experiment.sources import ExperimentLike, Source, TaskLike, folder_of, source_of
from outpace.experiment.sweeping.candidates import best_of, objective_of
from outpace.experiment.sweeping.search import Search
from outpace.experiment.sweeping.space import applied, combinations, dimensions_of, first_valid
from outpace.experiment.sweeping.study import Study, own_journal, quiet
from outpace.experiment.trials.where import On, on_of, pool_on
from outpace.record import folder as files
from outpace.report.sweeps.page import write_sweep_page
from outpace.report.sweeps.result import Candidate, Dimension, Objective, SweepResult
from outpace.support.notices import once, warn
from outpace.support.repeatable import one_thread_own_randomness
from outpace.support.yaml_files import in_one_line, write_yaml
from outpace.tasks import GivenTask, Script

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy

_GRID: Final = 64  # combinations that are all tried, unless fewer are asked for
_TRIALS: Final = 32  # candidates of a larger space, without a budget
_MOST_SEEDS: Final = 1000
PARALLEL: Final = 8
_COLUMNS: Final = ("number", "status", "value", "low", "high", "ended_at_s", "error")


@dataclass(frozen=True)
class Sweep(SweepResult):
    """The result of a sweep.

    Attributes:
        experiment: of the best candidate; None if no candidate is complete.
        study: the study in Optuna.
        folder: None if the sweep was kept in memory.
    """

    experiment: Experiment | None
    study: OptunaStudy
    folder: Path | None = None

    def __repr__(self) -> str:
        found = "no complete candidate" if self.best is None else in_one_line(self.best.values)
        return f"<Sweep of {len(self.candidates)} candidates, {self.objective.words}: {found}>"

    def to_pandas(self) -> Any:
        """Return a DataFrame with a row per candidate. Raises ConfigError without pandas."""
        rows = [
            {**each.values, **{k: v for k, v in asdict(each).items() if k in _COLUMNS}}
            for each in self.candidates
        ]
        return display.pandas().DataFrame(rows)


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
    parallel: int = PARALLEL,
    processes: int | None = None,
    on: On = None,
    on_begin: Callable[[str, int | None], None] = lambda _, __: None,
    on_end: Callable[[Candidate], None] = lambda _: None,
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
    TPE sampler proposes candidates. Runs run side by side, one per core, and candidates that
    cannot win are ended early; see `outpace.experiment.sweeping.candidates`.

    Args:
        experiment: as for `simulate`; `variants` and `seeds` of a comparison are ignored.
        over: values by key of the configuration, such as `sync.staleness`: a list, or a text:
            `log(a, b)`, `uniform(a, b)` or `int(a, b)`. For a script also `args.NAME`. Or texts
            KEY=VALUES.
        out: a new or empty folder for the study, `sweep.json`, `best.yaml` and `report.html`.
        trials: most candidates; None: 32, or until the budget is spent, or all combinations.
        budget_s: seconds after which every candidate is stopped.
        seeds: runs of each candidate, with the seeds s, s+1, ... of the configuration.
        target_accuracy, target_loss: look for the shortest virtual time to this value; None: what
            the configuration says, or else the best accuracy (or training loss) at the end.
        prune: False to end no candidate because others were better at the same virtual time.
        resume: continue the study in `out`.
        parallel: candidates of a group. The sampler proposes a group by the results of the groups
            before, so what is found depends on this number, but not on `processes`. A script's
            candidates run one after the other.
        processes: most runs at a time; None: one for each core.
        on: where the runs are carried out, as for `compare`; `out` is not needed.
        on_begin: called with the method in words, and the number of candidates if it is known.
        on_end: called with each candidate that has ended.
        task, changes: as for `simulate`.

    Raises:
        ConfigError: before anything is run, if the space or the configuration is invalid, or the
            study to be resumed is one of another configuration.
        KeyboardInterrupt: after the study and the report were written.
    """
    space = dimensions_of(over)
    source, out = source_of(experiment, task, changes), folder_of(out)
    _check_numbers(trials, budget_s, seeds, parallel)
    if resume and out is None:
        raise ConfigError("resume needs the folder of the study to continue")
    data = {key: value for key, value in source.data.items() if key not in ("variants", "seeds")}
    target = {"accuracy": target_accuracy, "loss": target_loss}
    if given := {key: value for key, value in target.items() if value is not None}:
        data["target"] = given

    def make(values: dict[str, Any]) -> Experiment:
        made = experiment_from(applied(data, values), source.name, source.folder or Path.cwd())
        return with_interval(source.with_given(made))

    reference = first_valid(make, space)
    if reference.seed + seeds > 2**63:
        raise ConfigError(f"seed {reference.seed} leaves no room for {seeds} seeds below 2^63")
    check(reference)
    objective = objective_of(reference, _has_accuracy(reference))
    count = combinations(space)
    grid = count is not None and count <= (_GRID if trials is None else trials)
    most = trials if trials is not None or budget_s is not None else _TRIALS
    if grid:
        most = count
    if isinstance(reference.task, Script | GivenTask):
        parallel = 1
        processes = 1 if on_of(on) is None else processes  # on a cluster, a run for each seed
    method = _method(count if grid else None, objective, prune, parallel)
    if not _has_interval(data, space):
        method += interval_words(reference)
    configuration = {
        "experiment": to_plain(reference),
        "over": {each.key: str(each) for each in space},
        "objective": objective.to_plain(),
        "seeds": seeds,
        "pruning": prune,
    }
    run_seeds = tuple(reference.seed + later for later in range(seeds))
    said = once(warn)
    with contextlib.ExitStack() as stack:
        stack.enter_context(quiet())
        if out is not None and not resume:
            _require_new(out)
        pool = stack.enter_context(
            pool_on(on, [reference], processes=processes, warning=lambda _, text: said(text))
        )
        if out is not None and not resume:
            files.new_folder(out)
        if out is not None:
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
        on_begin(method, most)
        search = Search(
            study,
            objective,
            make,
            pool,
            seeds=run_seeds,
            most=most,
            budget_s=budget_s,
            parallel=parallel,
            on_end=on_end,
        )
        try:
            search.run()
        finally:
            best = best_of(search.ended, objective)
            wall_s, cpu_s = study.spent
            found = Sweep(
                source.name,
                objective,
                tuple(space),
                tuple(sorted(search.ended, key=lambda each: each.number)),
                best,
                run_seeds,
                method,
                search.status,
                wall_s,
                cpu_s,
                None if best is None else make(best.values),
                study.optuna,
                out,
            )
            if out is not None:
                _write(found, out)
    return found


def _write(found: Sweep, out: Path) -> None:
    """Write `sweep.json`, `best.yaml` and `report.html`. Raises ConfigError or OSError."""
    files.write_json(out / files.SWEEP, found.to_plain())
    if found.best is not None and found.experiment is not None:
        values = ", ".join(f"{key}={in_one_line(each)}" for key, each in found.best.values.items())
        number = found.best.number
        lines = [
            f"The best of {len(found.candidates)} candidates of a sweep, number {number}:",
            values,
            f"{found.objective.words}: {found.best.value:.6g}",
            f"outpace simulate {out / files.BEST}",
        ]
        comments = "".join(f"# {line}\n" for line in lines)
        files.write_text(out / files.BEST, comments + write_yaml(to_plain(found.experiment)))
    write_sweep_page(found, out / files.REPORT, None if found.best is None else out / files.BEST)


def _require_new(out: Path) -> None:
    """Raise ConfigError unless the folder is new or empty."""
    if (out / files.JOURNAL).is_file():
        raise ConfigError(
            f"{out} is not an empty folder, it has a sweep already: add --resume to continue "
            "it, or choose another --out"
        )
    files.require_new(out)


def _check_numbers(trials: int | None, budget_s: float | None, seeds: int, parallel: int) -> None:
    if type(parallel) is not int or parallel < 1:
        raise ConfigError(f"parallel must be a whole number, at least 1, not {parallel!r}")
    if trials is not None and (type(trials) is not int or trials < 1):
        raise ConfigError(f"trials must be a whole number, at least 1, not {trials!r}")
    if type(seeds) is not int or not 1 <= seeds <= _MOST_SEEDS:
        raise ConfigError(f"seeds must be from 1 to {_MOST_SEEDS}, not {seeds!r}")
    if budget_s is not None and not (budget_s > 0 and math.isfinite(budget_s)):
        raise ConfigError(f"the budget must be a positive number of seconds, not {budget_s!r}")


def _has_accuracy(experiment: Experiment) -> bool | None:
    if experiment.has_script:
        return None
    with one_thread_own_randomness():
        task = experiment.task
        return task.workload(
            experiment.workers, experiment.batch_size, experiment.seed
        ).has_accuracy


def _has_interval(data: Mapping[str, Any], space: Sequence[Dimension]) -> bool:
    given = data.get("evaluate") or {}
    keys = {*given, *(each.key.removeprefix("evaluate.") for each in space)}
    return not keys.isdisjoint(("every_s", "every_updates", "evaluate"))


def _method(grid: int | None, objective: Objective, prune: bool, parallel: int) -> str:
    """Say how candidates are chosen and ended."""
    if grid is None:
        chosen = "Optuna's TPE sampler proposes candidates"
    else:
        chosen = f"all {grid} combinations are tried" if grid > 1 else "one combination is tried"
    if parallel > 1 and (grid is None or grid > 1):
        chosen += f", in groups of {parallel}"
    ended = []
    if objective.kind == "time-to-target":
        ended.append("its time is longer than the best time to the target")
    if prune and objective.quantity is not None:
        ended.append("it is worse than three quarters of the others at the same virtual time")
    return chosen + (f"; a candidate is ended early if {', or if '.join(ended)}" if ended else "")
