"""Makes runs in virtual time, with their files and trackers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from outpace.config.experiment import Experiment
from outpace.engine.output import OnOutput, print_line
from outpace.engine.scripts.requirements import require_script
from outpace.errors import ConfigError
from outpace.experiment.recorded_run import RecordedRun, records_of
from outpace.experiment.resuming import Resumption
from outpace.record.folder import SCRIPT_FILES, SCRIPT_OUTPUT, files_of_scripts
from outpace.record.trackers import require_usable
from outpace.simulation.composition import (
    require_composable,
    simulation_of,
    simulation_of_script,
)
from outpace.simulation.measured import times_of_task, with_measured_times
from outpace.simulation.network.links import MessageLog
from outpace.simulation.virtual import Progress
from outpace.support.notices import warn
from outpace.support.regular_files import inside
from outpace.support.repeatable import one_thread_own_randomness
from outpace.sync.messages import worker_name
from outpace.tasks import Workload


def check(experiment: Experiment) -> None:
    """Raise ConfigError if the task cannot be made, cut or trained as configured.

    For a script, only its existence is checked.
    """
    require_usable(experiment.trackers)
    if experiment.has_script:
        experiment.load_user_code()
        require_script(Path(experiment.script.path))
        return
    with one_thread_own_randomness():
        require_composable(experiment, workload_of(experiment))


def workload_of(experiment: Experiment) -> Workload:
    """Return the workload of a task (not a script). Raises ConfigError if it cannot be made."""
    experiment.load_user_code()
    return experiment.task.workload(experiment.workers, experiment.batch_size, experiment.seed)


def recorded_run(
    experiment: Experiment,
    out: Path | None,
    *,
    tracker: Any = None,
    name: str = "",
    keep_trace: bool = True,
    ended: Callable[[dict[str, Any]], object] = lambda _: None,
    resumed: Resumption | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> RecordedRun:
    """Return a run in virtual time that has not begun; see `simulate`.

    Make and drive it within `one_thread_own_randomness`.

    Args:
        name: name of one of several runs, for its trackers, and before the output of its script.
        keep_trace: False to drop the trace, and the output of a script, of a run without a folder.
        ended: called with the summary, for every kind of end.
        resumed: the run that is resumed, in its folder `out`; None: a new run.
        progress: called with the completed share of the run.
        options: `tie_seed` and `control`.

    Raises:
        ConfigError: if the experiment cannot be run.
    """
    require_usable(experiment.trackers)
    is_script = experiment.has_script
    unsaved = "in virtual time scripts are not saved, only in real runs"
    if is_script and resumed is not None:
        raise ConfigError(f"--resume: {unsaved}: simulate the script again")
    is_told = is_script and experiment.checkpoint is not None
    if is_told:
        experiment = replace(experiment, checkpoint=None)
    records = records_of(
        experiment, out, "simulate", tracker, resumed, warn, name=name, keep_trace=keep_trace
    )
    log = MessageLog() if experiment.network is not None and experiment.network.log else None
    is_new = out is not None and resumed is None
    free = files_of_scripts(out) if out is not None and is_script and is_new else nullcontext()
    options |= {
        "message_log": log,
        "resume": None if resumed is None else resumed.point,
        "keeper": records.keeper,
        "events": records.events,
        "progress": progress,
        "status": records.status,
        "warn": records.warnings.add,
    }
    # Made before the folder, so that an invalid experiment leaves no folder.
    with free:
        if is_script:
            experiment.load_user_code()
            show: OnOutput = print_line
            if name:
                show = _output_of(name, out, quiet=not keep_trace)
            folder = None if out is None else out / SCRIPT_FILES
            run = simulation_of_script(experiment, records.trace, folder, show, **options)
        else:
            workload = workload_of(experiment)
            experiment = with_measured_times(experiment, partial(times_of_task, workload))
            run = simulation_of(experiment, workload, records.trace, **options)
    if is_told:
        records.warnings.add(f"checkpoint: {unsaved}")
    records.warnings.add_settings(experiment)
    may_have = SCRIPT_FILES if is_script else ""
    return RecordedRun(run.experiment, run, records, log, may_have, ended)


def _output_of(run: str, out: Path | None, *, quiet: bool) -> OnOutput:
    """Return the function that takes the lines that scripts print in a run of a comparison.

    If the run has a folder, the lines are written to files in it, one for each worker, and only the
    lines of standard error are also printed, after the names of run and worker. Without a folder
    all lines are printed; if `quiet`, only the lines of standard error.
    """

    def show(worker: str, line: str, error: bool) -> None:
        if out is not None:
            folder = out / SCRIPT_FILES / (worker or worker_name(0))
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / SCRIPT_OUTPUT, "a", encoding="utf-8", opener=inside) as file:
                file.write(f"{line}\n")
        if error or (out is None and not quiet):
            print_line(f"{run}/{worker}" if worker else run, line, error)

    return show
