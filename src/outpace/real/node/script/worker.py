"""A worker with servers that trains the model of a user's script (see `attach`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from outpace.blocks.block import Block, StepSettings
from outpace.config.experiment import Experiment
from outpace.kernel import Walker
from outpace.optim.python import PythonOptimizer
from outpace.optim.torch_optimizers import require_known
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import Fetch, Initialize
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.script.model import OfScript, ScriptGradients, ScriptModel
from outpace.real.node.worker import EndsIt, Worker
from outpace.sync.programs.context import Stopped
from outpace.tasks.abort_points import AbortPoints, Computation


class ScriptWorker(OfScript, Worker):
    """The servers take the steps of the script's optimizer."""

    def __init__(
        self, link: CoordinatorLink, number: int, experiment: Experiment, script: ScriptModel
    ) -> None:
        super().__init__(link, number, experiment)
        self._script = script
        self._gradients = ScriptGradients(script, experiment, self.name, self.notice)
        self._limit = experiment.stop.iterations
        law = experiment.compute
        self._run_time = law and law.run_time(
            experiment.seed, experiment.workers, experiment.stop.iterations
        )
        self._slices = [slice(0, sum(self.layers))]
        self._step_settings: StepSettings | None = None
        self._iteration = 0
        self._abort_points = AbortPoints(script.model)
        self._must_stop: Callable[[], bool] = lambda: False
        self._stopped: Stopped | None = None  # the computation of this iteration

    @staticmethod
    def require_fit(script: ScriptModel, experiment: Experiment) -> None:
        """Raise ConfigError if servers could not take its steps."""
        if not isinstance(experiment.optimizer, PythonOptimizer):  # which is made on the servers
            require_known(type(script.optimizer))
        script.settings()  # raises if they cannot travel

    # -- what is trained ----------------------------------------------------------

    def cut(self, slices: Sequence[slice]) -> list[Block]:
        self._slices = list(slices)
        flat = self._script.flat()
        return [flat[part].clone() for part in slices]

    def initialize(self, server: int, block: Block) -> Initialize:
        groups = [list(group) for group in self._script.places(self._slices[server])]
        return Initialize(
            type(self._script.optimizer).__name__, self._script.settings(), groups, head_of(block)
        )

    def settings(self) -> StepSettings | None:
        return self._step_settings

    def must_stop(self, iteration: int) -> bool:
        return self._limit is not None and iteration >= self._limit

    # -- the script's side -----------------------------------------------------------

    def gradient(self) -> Sequence[Block | None]:
        """One block for each server; the settings of this step are noted."""
        abstain = [None] * len(self._slices)
        if self._stopped is not None:
            return abstain
        script = self._script
        self._step_settings = StepSettings(script.settings(), script.unused)
        self.recorder.gradient_computed(self.worker)
        flat = self._gradients.now(self._iteration)
        return abstain if flat is None else [flat[part] for part in self._slices]

    def tell_of_lost_state(self) -> None:
        self.notice(
            f"the optimizer of {self.name} has taken steps before: their traces "
            "(momentum and the like) stay behind, the servers' optimizer begins afresh"
        )

    async def execute(self, parameters: Sequence[Block], iteration: int) -> Sequence[Block | None]:
        self._load(parameters)
        self._iteration = iteration
        started = self.now
        drawn_s = self._run_time(self.worker, iteration, started) if self._run_time else 0.0
        self.kernel.stop()  # back to the user, once this walker waits
        gradient: Sequence[Block | None] = await self.kernel.wait()
        await self.stretch(started, drawn_s)
        return gradient

    async def execute_until(
        self, parameters: Sequence[Block], iteration: int, ends_it: EndsIt
    ) -> Sequence[Block | None] | Stopped:
        self._load(parameters)
        self._iteration, self._stopped = iteration, None
        started = self.now
        drawn_s = self._run_time(self.worker, iteration, started) if self._run_time else 0.0
        self._must_stop = self.looked_for(ends_it)
        self.kernel.stop()  # back to the user, once this walker waits
        gradient: Sequence[Block | None] = await self.kernel.wait()
        stopped = self._stopped
        if stopped is None and drawn_s:
            stopped = await self.stretch_until(started, drawn_s, ends_it)
        return stopped or gradient

    @contextmanager
    def stopping(self) -> Iterator[Computation]:
        """May be stopped by a message that ends the iteration."""
        with self._abort_points.stopping_at(self._must_stop) as computation:
            yield computation
        if computation.stopped:
            self._stopped = Stopped(computation.share)

    async def goodbye(self, program: Walker[None], *, fetch: bool) -> None:
        # Beside the program, which stays where it waits.
        self.send_leave()
        if fetch:
            for caller in self.callers:
                caller.send(Fetch(final=True))
            blocks = list(self._blocks)
            for _ in self.callers:
                shard, block = await self.snapshots.get()
                blocks[shard] = block
            self._load(blocks)
        self.kernel.stop()

    def hand_over(self) -> None:
        """The servers have everything."""

    def _load(self, blocks: Sequence[Block]) -> None:
        """Put the pulled parameters into the model."""
        self._blocks = list(blocks)
        self._script.load(blocks)
