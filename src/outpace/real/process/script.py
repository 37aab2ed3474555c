"""Run a user's script in a worker's process of a real run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from outpace.config.experiment import Experiment
from outpace.engine.scripts.running import run_as_main
from outpace.real.node.member import CoordinatorLink, report_failure
from outpace.real.node.script.attach import attached
from outpace.support.place import HERE
from outpace.sync.messages import worker_name
from outpace.tasks import Script


def run_script(
    link: CoordinatorLink, number: int, experiment: Experiment, *, files: Path | None = None
) -> None:
    """Run the script like `python script arguments`, then leave the run.

    Errors are reported to the coordinator; the traceback of a user's error is printed.

    Args:
        files: the folder for files of all workers' scripts, see `outpace.output_dir`.
    """
    task = experiment.task
    assert isinstance(task, Script)
    HERE.attach = partial(attached, link, number, experiment)
    HERE.number, HERE.workers = number, experiment.workers
    HERE.files = None if files is None else files / worker_name(number)
    problem = run_as_main(task, number, experiment.seed)
    if HERE.worker is None:
        assert problem is not None
        report_failure(link, problem)
    else:
        HERE.worker.end(problem)
