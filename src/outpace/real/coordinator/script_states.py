"""The states of workers' scripts: their parts of a checkpoint, and their states to continue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec
import numpy as np
import torch

from outpace.config.experiment import Experiment
from outpace.engine.resuming import ResumePoint, kept_in
from outpace.engine.scripts.redividing import Redivided, redivided, script_files
from outpace.errors import RunError
from outpace.real.net.checkpoint_messages import ScriptState
from outpace.real.net.messages import Plan
from outpace.real.net.transport import Listener
from outpace.sync.messages import worker_name


class ScriptStates:
    """Gives scripts the states that they saved at the last checkpoint, or have sent since then.

    Without servers each worker reads its state itself; it is told how the data are divided again.

    Args:
        resume: the point at which the run is resumed; None: a new run.
        last: returns the folder of the last checkpoint, and the workers whose scripts had ended
            there; None: there is none yet.

    Raises:
        ConfigError: if the number of workers differs from the checkpoint's, and must not differ.
        OSError: if a file cannot be read.
    """

    def __init__(
        self,
        experiment: Experiment,
        listener: Listener,
        resume: ResumePoint | None,
        last: Callable[[], Path | None],
    ) -> None:
        is_script = experiment.has_script
        self._is_wanted = is_script and experiment.peers is None
        self._listener, self._last = listener, last
        self._workers = experiment.workers
        self._files: dict[int, Path] = {}
        self._redivided: Redivided | None = None
        # By worker: the number of iterations that the servers have of it, if it continues with its
        # own data.
        self._first: Mapping[int, int] = {}
        self._resume = None if resume is None else resume.path
        # By worker: its newest state since it began, and the iteration of that state.
        self._sent: dict[int, tuple[torch.Tensor, int]] = {}
        self.ended: Collection[int] = ()
        if is_script and resume is not None:
            self._redivided = redivided(resume)
        if self._is_wanted and resume is not None:
            self._files = script_files(resume)
            self.ended = resume.checkpoint.index.ended
            if self._redivided is None:
                self._first = dict(enumerate(resume.first))

    def all(self) -> dict[int, torch.Tensor]:
        """Return the states with which scripts continue, by worker; only existing ones.

        Raises:
            RunError: if a file cannot be read.
        """
        return {worker: self._read(worker, path) for worker, path in self._files.items()}

    def sent(self, worker: int, data: torch.Tensor, iteration: int) -> None:
        """Store the state of a worker's script at the beginning of this iteration."""
        self._sent[worker] = data, iteration

    def saved(self, worker: int, iteration: int) -> None:
        """Forget states that are older than the one saved for a checkpoint."""
        if self.iteration(worker) < iteration:
            self._sent.pop(worker, None)

    def iteration(self, worker: int) -> int:
        """Return the iteration of a worker's newest state; 0: not known."""
        return self._sent[worker][1] if worker in self._sent else 0

    def of(self, worker: int) -> dict[int, torch.Tensor]:
        """Return, like `all`, the state for the new process of a worker's script."""
        if (sent := self._sent.get(worker)) is not None:
            return {worker: sent[0]}
        folder = self._last() if self._is_wanted else None
        if folder is None:
            return {}  # there is no checkpoint yet
        is_first = self._is_resumed(folder)
        path = self._files.get(worker) if is_first else folder / kept_in(worker)
        return {} if path is None else {worker: self._read(worker, path)}

    def _is_resumed(self, folder: Path) -> bool:
        """True if the run is resumed from this checkpoint, and so has no newer one."""
        return self._resume is not None and folder.name == self._resume.name

    def announced(self, plan: Plan, states: Mapping[int, torch.Tensor]) -> Plan:
        """Return the plan for workers with a note of the states that follow it."""
        sizes = [states[n].numel() if n in states else 0 for n in range(self._workers)]
        plan = msgspec.structs.replace(plan, kept=sizes if states else [], ended=list(self.ended))
        folder, others = self._last(), self._redivided
        if others is None or (folder is not None and not self._is_resumed(folder)):
            return plan  # the states are from the same number of workers
        if states.keys() & self._sent.keys():
            return plan
        return msgspec.structs.replace(plan, before=others.before, places=others.places)

    def send(
        self,
        states: Mapping[int, torch.Tensor],
        done: Mapping[int, int] | None = None,
    ) -> None:
        """Send each worker the state of its script, after the plan.

        Args:
            done: for each worker, the number of iterations whose gradients the servers have from
                the replaced process; None: the run is resumed from a checkpoint, which has these
                numbers.
        """
        logs = done is None
        iterations = self._first if done is None else done
        for worker, data in states.items():
            message = ScriptState(data, iterations.get(worker, 0), logs)
            self._listener.send(worker_name(worker), message)

    @staticmethod
    def _read(worker: int, path: Path) -> torch.Tensor:
        try:
            return torch.from_numpy(np.fromfile(path, dtype=np.uint8))
        except OSError as error:
            raise RunError(
                f"cannot read what the script of {worker_name(worker)} kept: {error}"
            ) from error
