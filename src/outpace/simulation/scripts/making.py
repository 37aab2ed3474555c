"""Makes the run of a script in virtual time."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from outpace.cluster.observed import Measured
from outpace.config.experiment import Experiment
from outpace.engine.output import OnOutput
from outpace.engine.scripts.running import require_script
from outpace.record.trace import Trace
from outpace.simulation.composition import simulation_of
from outpace.simulation.measured import with_measured_times
from outpace.simulation.scripts.measuring import times_of_script
from outpace.simulation.scripts.workers import ScriptWorkers
from outpace.simulation.scripts.workload import ScriptWorkload
from outpace.simulation.virtual import VirtualRun


def simulation_of_script(
    experiment: Experiment, trace: Trace, files: Path | None, show: OnOutput, **options: Any
) -> VirtualRun:
    """Start the scripts of all workers, and return their run once all have attached.

    Without a law of run times, they are measured first: see `scripts.measuring`.

    Args:
        files: the folder for files of the scripts; None: the run keeps none.
        show: called with each line that the scripts print.
        options: of `simulation_of`.

    Raises:
        ConfigError: if the script does not fit the run, or not into the memory.
        RunError: if a script fails before it attaches.
    """
    task = experiment.script
    # Absolute, because processes start in the folder in which the fork server was started.
    task = dataclasses.replace(task, path=str(require_script(Path(task.path)).absolute()))
    experiment = dataclasses.replace(
        experiment, task=task, compute=experiment.compute or Measured()
    )
    experiment = with_measured_times(experiment, times_of_script)
    workers = ScriptWorkers(experiment, None if files is None else files.absolute(), show)
    try:
        return simulation_of(experiment, ScriptWorkload(workers), trace, **options)
    except BaseException:
        workers.close()
        raise
