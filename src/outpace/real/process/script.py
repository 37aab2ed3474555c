"""Run a user's script in a worker's process of a real run."""

from __future__ import annotations

from outpace.config.experiment import Experiment
from outpace.engine.scripts.running import run_as_main
from outpace.real.node.member import CoordinatorLink, report_failure
from outpace.support.place import HERE
from outpace.tasks import Script


def run_script(link: CoordinatorLink, number: int, experiment: Experiment) -> None:
    """Run the script like `python script arguments`, then leave the run.

    Errors are reported to the coordinator; the traceback of a user's error is printed.
    """
    task = experiment.task
    assert isinstance(task, Script)
    HERE.link, HERE.experiment = link, experiment
    HERE.number, HERE.workers = number, experiment.workers
    problem = run_as_main(task, number, experiment.seed)
    if HERE.worker is None:
        assert problem is not None
        report_failure(link, problem)
    else:
        HERE.worker.end(problem)
