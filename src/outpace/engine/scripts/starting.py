"""Run the script of a worker in its process, the same in both runtimes."""

from __future__ import annotations

from pathlib import Path

from outpace.config.experiment import Experiment
from outpace.engine.distributed.patches import install
from outpace.engine.scripts.files import Written
from outpace.engine.scripts.running import run_as_main
from outpace.support.place import HERE
from outpace.sync.messages import worker_name


def run_script_here(
    number: int,
    experiment: Experiment,
    files: Path | None,
    written: Written,
    *,
    is_outside: bool = False,
) -> Exception | None:
    """Run a script like `python script arguments`, as a worker.

    `HERE.attach`, `HERE.collectives` and `HERE.follow` are set already.

    Args:
        number: of the worker.
        files: the folder for files of all workers' scripts, see `outpace.output_dir`.
        written: watches what the script writes.
        is_outside: another launcher has started this process; its variables stay.

    Returns:
        How the script failed; None if it has just ended.
    """
    task = experiment.script
    HERE.number, HERE.workers = number, experiment.workers
    HERE.files = None if files is None else files / worker_name(number)
    if experiment.peers is None or not experiment.peers.is_ddp:
        HERE.follow = None
    sync = experiment.sync if isinstance(experiment.sync, tuple) else (experiment.sync,)
    kinds = ", ".join(dict.fromkeys(str(getattr(each, "kind", "python")) for each in sync))
    install(kinds, task.path, is_outside=is_outside)
    written.watch()
    return run_as_main(task, number, experiment.seed)
