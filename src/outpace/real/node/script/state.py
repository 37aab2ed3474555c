"""The state of a script's optimizer in a real run: on the servers, or in this worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from outpace.errors import RunError
from outpace.optim.torch_optimizers import State
from outpace.real.node.script.peer_models import ScriptModels
from outpace.real.node.script.trainer import ScriptTrainer
from outpace.real.node.worker import ServedWorker
from outpace.real.node.worker_process import WorkerProcess


class WorkerState:
    """Implements `Holder`. Of several workers with servers, what worker 0 loads counts.

    Args:
        models: the script's parameters in a run without servers.
        run_kernel: runs the kernel until it stops.
        has_left: returns True after the script has left the run.
        is_copy: returns True in a process that the script has forked.
    """

    def __init__(
        self,
        process: WorkerProcess,
        trainer: ScriptTrainer,
        models: ScriptModels | None,
        run_kernel: Callable[[], None],
        has_left: Callable[[], bool],
        is_copy: Callable[[], bool],
    ) -> None:
        self._process, self._trainer, self._models = process, trainer, models
        self._run_kernel, self._has_left, self._is_copy = run_kernel, has_left, is_copy
        self._fetched: dict[int, State] = {}

    @property
    def holds(self) -> bool:
        return isinstance(self._process, ServedWorker) or (
            self._models is not None and self._models.holds_state
        )

    @property
    def is_out(self) -> bool:
        return self._has_left() or self._is_copy()

    def fetch(self) -> Mapping[int, State]:
        if self._models is not None:
            return self._models.read_state()
        process = self._process
        assert isinstance(process, ServedWorker)
        self._trainer.require_between_steps()
        if process.closed or self._is_copy():
            raise RunError(
                f"the servers' optimizer state can be fetched only by {process.name} itself, not "
                "by processes that it forks, and only until its script ends: call "
                "optimizer.state_dict() there"
            )
        fetching = process.kernel.spawn(self._fetch(process), f"{process.name}'s state")
        while not fetching.done:
            self._run_kernel()
        found, self._fetched = self._fetched, {}
        return found

    async def _fetch(self, process: ServedWorker) -> None:
        self._fetched = self._trainer.joined_state(await process.optimizer_state())
        process.kernel.stop()

    def require_loadable(self) -> None:
        self._trainer.require_between_steps()
        if self._models is not None and not self._has_left():
            self._models.require_loadable()

    def replace(self) -> None:
        if self._models is not None:
            self._models.load_state()
        elif self._process.worker == 0:
            assert isinstance(self._process, ServedWorker)
            process = self._process
            process.replace_optimizer_state(self._trainer.state())
