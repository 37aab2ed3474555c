"""A worker without servers that trains the model of a user's script (see `attach`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from outpace.blocks.block import Block, Value, whole
from outpace.blocks.pieces import Pieces
from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.kernel import Mailbox, Walker
from outpace.optim.python import PythonOptimizer
from outpace.real.net.messages import Fetch, Snapshot, TrainingDone, WireMessage
from outpace.real.node.member import CoordinatorLink
from outpace.real.node.peer import Peer
from outpace.real.node.script.model import OfScript, ScriptGradients, ScriptModel
from outpace.real.node.script.parameters import (
    Beside,
    Buffers,
    InPlace,
    ScriptReplica,
    Tail,
    WithBuffers,
)
from outpace.sync.parameter_block import copy_of, parameter_block
from outpace.sync.peers.context import CommonParameters, OwnParameters, Parameters
from outpace.sync.peers.parameters import Common, SharedModel
from outpace.tasks.abort_points import AbortPoints, Computation


class ScriptPeer(OfScript, Peer):
    """The script's own optimizer takes the steps, in every worker."""

    def __init__(
        self, link: CoordinatorLink, number: int, experiment: Experiment, script: ScriptModel
    ) -> None:
        super().__init__(link, number, experiment)
        self._script, self._experiment = script, experiment
        self._gradients = ScriptGradients(script, experiment, self.name, self.notice)
        self._limit = experiment.stop.iterations
        law = experiment.compute
        self._run_time = law and law.run_time(
            experiment.seed, experiment.workers, experiment.stop.iterations
        )
        self._buffers = Buffers(script, self.strategy.buffers == "average")
        self._tail = Tail(script, self._buffers, settings=self.strategy.uses_replica)
        self._in_place = InPlace(script, self._tail, self.changed, self.stepped)
        self._common: CommonParameters
        self._outer: SharedModel  # common, beside the worker's own
        self._iteration_now = 0
        self._final = Mailbox[Block](self.kernel, "the final parameters")
        self._is_over = False
        self._abort_points = AbortPoints(script.model if self.strategy.exchanges else None)
        self._look_around = self.now_and_then(lambda: False)

    @staticmethod
    def require_fit(script: ScriptModel, experiment: Experiment) -> None:
        """Raise ConfigError if this strategy could not take its steps."""
        if isinstance(experiment.optimizer, PythonOptimizer):
            raise ConfigError(
                "optimizer: without servers the script's own takes the steps: leave it out"
            )
        if isinstance(script.optimizer, torch.optim.LBFGS):
            raise ConfigError("LBFGS computes gradients itself, several for a step: take another")
        strategy = experiment.peers
        assert strategy is not None
        if strategy.uses_replica and type(script.optimizer) is not torch.optim.SGD:
            kind = type(script.optimizer).__name__
            raise ConfigError(
                f"the replica of {strategy.kind} takes plain steps: use SGD, not {kind}"
            )

    # -- what is trained ----------------------------------------------------------

    @property
    def tail(self) -> int:
        return self._buffers.elements if self.strategy.has_own else self._tail.elements

    @property
    def averages_in_place(self) -> bool:
        return self.strategy.averages_gradients

    @property
    def device(self) -> torch.device | None:
        return self._script.device

    def parameters_on_gpu(self) -> torch.Tensor:
        self._script.exchanged_there = True
        return self._script.flat()

    def parameters(self) -> torch.Tensor:
        return self._script.flat()

    def start_from(self, parameters: torch.Tensor) -> None:
        self._script.load([parameters])

    def prepare(self) -> None:
        strategy, script = self.strategy, self._script
        if strategy.uses_replica:
            self._common = Beside(script, self._tail, script.flat(), self.changed)
        elif strategy.has_common and strategy.has_own:
            outer = strategy.common_optimizer(self._experiment.optimizer)
            model = SharedModel(parameter_block(script.flat(), outer), self.workers, self.changed)
            self._outer = model
            self._common = Common(model)
        else:
            self._common = self._in_place

    def common(self) -> CommonParameters:
        return self._common

    def own(self) -> OwnParameters:
        if self._buffers.elements:
            return WithBuffers(self._in_place, self._buffers)
        return self._in_place

    def change_own(self, by: torch.Tensor) -> None:
        self._in_place.change(by)

    def now_trained(self) -> Value:
        if self.strategy.has_common and self.strategy.has_own:
            return self._outer.newest.value
        return copy_of(self._common.read())

    def must_stop(self, iteration: int) -> bool:
        return self._is_over or (self._limit is not None and iteration >= self._limit)

    def version_of(self, at: Parameters) -> int | None:
        if isinstance(at, ScriptReplica):
            return at.version
        return None if self.strategy.has_own else self._version

    async def gradient_at(self, at: Parameters, iteration: int) -> Block | None:
        if isinstance(at, ScriptReplica):
            at.show()
        self._iteration_now = iteration
        started = self.now
        drawn_s = self._run_time(self.worker, iteration, started) if self._run_time else 0.0
        self._in_place.begin_gradient()
        self.kernel.stop()  # back to the user, once this walker waits
        gradient: Pieces | None = await self.kernel.wait()
        self._in_place.end_gradient()
        if not self._is_over:
            self.recorder.gradient_computed(self.worker)
            await self.stretch(started, drawn_s)
        return gradient

    def refused(self) -> None:
        self._gradients.refuse(self._iteration_now)

    # -- the script's side -----------------------------------------------------------

    def gradient(self) -> Pieces | None:
        """With what travels behind it."""
        checked_later = self.strategy.averages_gradients  # on its way to the others
        found = self._gradients.in_place(self._iteration_now, look=not checked_later)
        return found if found is None or self.strategy.has_own else self._tail.behind(found)

    def tell_of_lost_state(self) -> None:
        if self.strategy.uses_replica:
            self.notice(
                f"the optimizer of {self.name} has taken steps before: their traces (momentum and "
                "the like) stay behind, that of the parameters all have in common begins afresh"
            )

    @contextmanager
    def stopping(self) -> Iterator[Computation]:
        """Nothing stops it; whoever averages with this worker need not wait for its end."""
        with self._abort_points.stopping_at(self._look_around) as computation:
            yield computation

    async def goodbye(self, program: Walker[None], *, fetch: bool) -> None:
        self._is_over = True
        program.notify(None)
        await program.join()
        if fetch:
            self.flush()
            self.coordinator.send(TrainingDone())  # or nobody would say that all have left
            self.coordinator.send(Fetch(final=True))
            self._script.load([await self._final.get()])
        elif self.strategy.has_common:
            self._script.load([self.now_trained()])
        self.kernel.stop()

    def hand_over(self) -> None:
        self.say_last()

    # -- what comes in ---------------------------------------------------------------

    def _expected(self, message: WireMessage) -> tuple[str, int] | None:
        if isinstance(message, Snapshot):
            return message.block.dtype, self._elements
        return super()._expected(message)

    def _order(self, peer: str, message: WireMessage, block: Block | None) -> None:
        if isinstance(message, Snapshot):
            assert block is not None
            self._final.put(whole(block))
        else:
            super()._order(peer, message, block)
