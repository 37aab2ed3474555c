"""A server's part of the parameters: optimizer, policy and shard, and requests for them."""

from __future__ import annotations

from dataclasses import replace

from outpace.blocks.block import whole, whole_tensor
from outpace.blocks.slicing import layers_within
from outpace.config.experiment import Experiment
from outpace.engine.scripts.optimizer_state import lengths_of
from outpace.engine.servers import is_narrow
from outpace.kernel import Future
from outpace.optim import Optimizer
from outpace.optim.torch_optimizers import State, TorchOptimizer, TorchSteps
from outpace.real.control import changed
from outpace.real.net.block_frames import block_elements, on_the_wire, value_bytes
from outpace.real.net.messages import (
    ChangePolicy,
    Initialize,
    OptimizerState,
    Plan,
    Snapshot,
)
from outpace.real.net.transport import Listener
from outpace.real.node.member import Member
from outpace.real.node.optimizer_state import entries_of, state_from
from outpace.real.node.times import ServiceTimes, TimedShard
from outpace.real.node.versions import AwaitedVersions
from outpace.support.units import Time
from outpace.sync import Policy
from outpace.sync.messages import SetPolicy
from outpace.sync.parameter_block import TensorBlock, parameter_block


class ServerPart:
    """The parameters of a server, their shard, and the requests for them.

    Only the state of an optimizer of torch is sent; the state of others is empty. Requests of
    workers are answered at once, when the shard exists, or when all workers have left.

    Attributes:
        shard: the shard; not set before `has_begun`.
        has_begun: True when the shard exists.
        lengths: number of elements in the part, for each tensor of the model.
        block: dtype and elements of the part; None: they are not known yet.
        sent: dtype and elements of the block that is pushed, and that answers a pull.
        all_left_at: time when all workers had left; None: they have not.
        versions: versions for which the coordinator waits.
    """

    shard: TimedShard

    def __init__(
        self,
        process: Member,
        listener: Listener,
        index: int,
        experiment: Experiment,
        times: ServiceTimes,
    ) -> None:
        self.has_begun = False
        self.block: tuple[str, int] | None = None
        self.sent: tuple[str, int] | None = None
        self.all_left_at: Time | None = None
        self._process, self._listener, self._times = process, listener, times
        self._index, self._experiment, kernel = index, experiment, process.kernel
        self._waiting: dict[tuple[str, str], None] = {}  # requests: a worker, and what it fetches
        self.versions = AwaitedVersions(
            process.coordinator.send, self._progress, self._send_snapshot
        )
        self._followed = experiment.policies.initial()[index]
        self._plan: Plan
        self._initialized = Future[Initialize](kernel, "worker-0's parameters")
        # optimizer of the block; None: there is no state to send
        self._steps: TorchSteps | None = None
        self.lengths: dict[int, int] = {}
        self._initial_state = Future[dict[int, State]](kernel, "the optimizer's state")

    # -- before the run begins -----------------------------------------------------------

    def planned(self, plan: Plan) -> None:
        """Handle the plan of the run; prepare shared memory for workers on this machine."""
        self._plan = plan
        block = self.block = plan.dtype, block_elements(plan.dtype, plan.slices[self._index])
        self.sent = on_the_wire(block) if is_narrow(self._experiment) else block
        self._process.coordinator.share_memory(value_bytes(block))
        self._listener.share_memory(value_bytes(self.sent))

    def initialize(self, initialize: Initialize) -> bool:
        """Handle worker 0's initial data; False if they have arrived before."""
        if self._initialized.done:
            return False
        self.lengths = lengths_of(initialize.groups)
        self._initialized.set(initialize)
        return True

    async def begin(self) -> None:
        """Wait for the initial data of worker 0, then make the shard."""
        initialize = await self._initialized
        plan, experiment = self._plan, self._experiment
        block = parameter_block(
            whole(initialize.block),
            self._optimizer(initialize),
            deterministic=experiment.deterministic,
            layers=layers_within(plan.slices[self._index], plan.layers),
        )
        if isinstance(block, TensorBlock) and isinstance(block.take_step, TorchSteps):
            self._steps = block.take_step
            if initialize.has_state:
                self._steps.load(await self._initial_state)
        self.shard = TimedShard(
            self._index,
            block,
            experiment.workers,
            self._followed.policy,
            self._process.recorder,
            self.versions.reached,
            self._process.warn,
            times=self._times,
            members_changed=self._answer_waiting,
        )
        self.has_begun = True
        self._answer_waiting()

    def _optimizer(self, attached: Initialize) -> Optimizer:
        """Return the optimizer for the block, of the configuration or of a script."""
        configured = self._experiment.optimizer
        if not attached.optimizer:
            return configured
        return TorchOptimizer(attached.optimizer, attached.groups, attached.settings)

    # -- the policy ------------------------------------------------------------------------

    def follow(self, policy: Policy) -> SetPolicy:
        """Return the message that lets the shard follow a policy, under the same conditions."""
        self._followed = replace(self._followed, base=policy)
        return SetPolicy(self._followed.policy)

    def change_policy(self, order: ChangePolicy) -> SetPolicy:
        """Return the message that lets the shard follow an order of the coordinator.

        Raises:
            ConfigError: if the server's configuration does not name the policy or condition.
        """
        self._followed = changed(self._followed, self._experiment, order)
        return SetPolicy(self._followed.policy)

    # -- requests ------------------------------------------------------------------------------

    def fetch(self, peer: str, what: str) -> bool:
        """Answer or store a worker's Fetch; False if the worker must not send it now."""
        if what == "state" and not self.has_begun:
            return False
        self._waiting[peer, what] = None
        self._answer_waiting()
        return True

    def _answer_waiting(self) -> None:
        """Answer the requests for data that exist now."""
        waiting, self._waiting = self._waiting, {}
        all_left = self.has_begun and self.shard.live == 0
        if all_left and self.all_left_at is None:
            self.all_left_at = self._process.clock.now
        for peer, what in waiting:
            if what == "state":
                self._listener.send(peer, self._optimizer_state())
            elif all_left if what == "final" else self.has_begun:
                self._listener.send(peer, self._snapshot(request=0, applied=0))
            else:
                self._waiting[peer, what] = None

    def forget(self, peer: str) -> None:
        """Do not answer a worker's process that was replaced."""
        self._waiting = {each: None for each in self._waiting if each[0] != peer}

    def load_state(self, message: OptimizerState) -> bool:
        """Replace the optimizer's state, or set its first one; False if not allowed now."""
        may_load = self._steps is not None if self.has_begun else not self._initial_state.done
        if may_load:
            state = state_from(message.entries, whole_tensor(message.block))
            if self.has_begun:
                assert self._steps is not None
                self._steps.load(state)
            else:
                self._initial_state.set(state)
        return may_load

    def _optimizer_state(self) -> OptimizerState:
        entries, data = entries_of({} if self._steps is None else self._steps.state())
        return OptimizerState(self._index, entries, data)

    def _progress(self) -> tuple[int, int]:
        return self.shard.version, self.shard.clock

    def _send_snapshot(self, request: int) -> None:
        applied = self._process.recorder.totals.applied
        self._process.coordinator.send(self._snapshot(request, applied))

    def _snapshot(self, request: int, applied: int) -> Snapshot:
        """Return the parameters in the form in which they are sent. Arguments: see `Snapshot`."""
        shard, now = self.shard, self._process.clock.now
        return Snapshot(self._index, shard.version, request, now, applied, shard.read())
