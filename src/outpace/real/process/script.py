"""Runs a user's script in a worker's process of a real run."""

from __future__ import annotations

from pathlib import Path

import torch

from outpace.config.experiment import Experiment
from outpace.engine.scripts.attached import AttachedScript
from outpace.engine.scripts.files import Written
from outpace.engine.scripts.running import run_script_here
from outpace.engine.scripts.worker import FollowedScript
from outpace.engine.servers import leaves_behind
from outpace.real.collective.group import own_address
from outpace.real.collective.script_collectives import BackendCollectives
from outpace.real.collective.store import StoreConnection
from outpace.real.node.member import CoordinatorLink, report_failure
from outpace.real.script.attach import attached
from outpace.real.script.driver import OwnCollectives, WorkerDriver
from outpace.real.script.follow import followed
from outpace.support.place import HERE


def run_script(
    link: CoordinatorLink,
    number: int,
    experiment: Experiment,
    *,
    files: Path | None = None,
    is_outside: bool = False,
) -> Exception | None:
    """Run the script like `python script arguments`, then leave the run.

    Errors are reported to the coordinator; the traceback of a user's error is printed.

    Args:
        files: the folder for files of all workers' scripts, see `outpace.output_dir`.
        is_outside: True: another launcher has started this process, so its variables are kept.

    Returns:
        How the script failed; None if it has ended without an error.
    """
    place, written = _Place(link, number, experiment), Written()
    HERE.attach, HERE.collectives, HERE.follow = place.attach, place.make_collectives, place.follow
    problem = run_script_here(number, experiment, files, written, is_outside=is_outside)
    if HERE.worker is None:
        assert problem is not None
        report_failure(link, problem)
    else:
        driver: WorkerDriver = HERE.worker.driver
        if problem is None:
            driver.tell_written(written.overwritten)
        HERE.worker.end(problem)
    place.close()
    return problem


class _Place:
    """Tells which worker the script of this process may become: see `support.place`."""

    def __init__(self, link: CoordinatorLink, number: int, experiment: Experiment) -> None:
        self._link, self._number, self._experiment = link, number, experiment
        self._store = StoreConnection(link)
        self._made: list[BackendCollectives] = []  # by `init_process_group`

    def make_collectives(self, timeout_s: float, backend: str | None) -> BackendCollectives:
        """See `HERE.collectives`."""
        link = self._link
        collectives = BackendCollectives(
            self._store,
            own_address(link.endpoint),
            self._number,
            self._experiment.workers,
            timeout_s,
            backend,
            number=len(self._made),
            follows=HERE.follow is not None,
        )
        if self._made:
            collectives.observer = self._made[-1].observer
        self._made.append(collectives)
        return collectives

    def attach(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> AttachedScript:
        """See `HERE.attach`."""
        experiment, stops_others = self._experiment, False
        if self._made:
            stops_others = experiment.peers is None and leaves_behind(experiment)
        driver = attached(
            self._link,
            self._number,
            experiment,
            model,
            optimizer,
            self._store,
            (lambda: self._made[-1].end_run()) if stops_others else (lambda: None),
        )
        if self._made:
            self._made[-1].observer = OwnCollectives(driver)
        return AttachedScript(driver, experiment)

    def follow(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> FollowedScript:
        """See `HERE.follow`."""
        made = self._made[-1]
        return FollowedScript(
            followed(self._link, self._number, self._experiment, made, model, optimizer)
        )

    def close(self) -> None:
        """End everything that the script has left open."""
        for collectives in self._made:
            collectives.end()
        self._store.close()
