"""The process of a worker whose script uses its own collectives and optimizer (decision 11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from outpace.blocks.block import Block, parameters_digest
from outpace.config.experiment import Experiment
from outpace.engine.scripts.model import ScriptModel
from outpace.errors import RunError
from outpace.real.collective.group import Group, timed_all_reduces
from outpace.real.net.block_frames import head_of
from outpace.real.node.averaging_worker import AveragingWorker
from outpace.real.node.member import CoordinatorLink
from outpace.real.script.trainer import ScriptTrainer
from outpace.support.units import Time

_LOST_S: Final = 2.0  # seconds for the coordinator to name a lost worker


class FollowingWorker(AveragingWorker):
    """Represents the worker in the run, and sends the script's parameters at the end.

    probe_group: makes the group whose all-reduces are timed before the run.
    """

    def __init__(
        self,
        link: CoordinatorLink,
        worker: int,
        experiment: Experiment,
        script: ScriptModel,
        probe_group: Callable[[], Group],
    ) -> None:
        super().__init__(link, worker, experiment)
        self._script, self._probe_group = script, probe_group

    async def work(self, trainer: ScriptTrainer) -> None:
        """Join the run; wait until the script has ended its training."""
        self.trainer = trainer
        parameters = self._script.flat()
        head = head_of(parameters)
        digest = parameters_digest([parameters])
        plan = await self.join_run(digest=digest, dtype=head.dtype, follows=True)
        await self.agree_on_buffers(gives=self.worker == 0)
        self._resume(plan)
        trainer.iteration = self.first_iteration
        await self.start_run()
        self._is_in_run = True
        self.kernel.stop()
        await self.from_script.get()

    async def agree_on_buffers(self, *, gives: bool) -> None:
        """Send worker 0's buffers for the records. The script's collectives share them."""
        own = self.trainer.read_buffers(unsaved=True)
        await super().agree_on_buffers(gives=gives)
        self.trainer.load_buffers(own)

    @property
    def results(self) -> int:
        """The number of steps of the common model, each along an average of gradients."""
        return self.version

    async def probe(self, budget: Time) -> None:
        """Time all-reduces of several sizes, all workers together, while the script waits."""
        device = self._script.parameters[0].device
        try:
            found = timed_all_reduces(self._probe_group(), budget, device, lambda: self.now)
            self.note_probes(found)
        except RuntimeError as error:
            await self.kernel.sleep(_LOST_S)
            raise RunError(
                f"{self.name}: measuring the network before the run failed; probe: false leaves "
                f"this out ({error})"
            ) from None

    async def leave(self, *, fetch: bool) -> list[Block]:
        self.from_script.put([])
        await self.program
        return []  # the parameters of all workers are the same

    def _end_training(self) -> None:
        if self.worker == 0:
            self._send_snapshot(0)

    def _send_snapshot(self, request: int) -> None:
        applied = self.recorder.totals.applied
        self.send_snapshot(self._script.flat(), self.version, request, applied)
