"""The parameters of a user's script in a worker without servers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from outpace.blocks.block import Block, Value, parts, whole
from outpace.config.experiment import Experiment
from outpace.engine.scripts.blocks import (
    ScriptBlock,
    replicas_of_scripts,
    taken_apart,
    value_with,
)
from outpace.engine.scripts.buffers import AveragedBuffers
from outpace.engine.scripts.sameness import (
    NONE,
    differing_models,
    model_digest,
    model_is_due,
    settings_digest,
    who_differ,
    without_numbers,
)
from outpace.engine.scripts.trailer import Settings, Trailer, numbers_in
from outpace.optim import OptimizerState
from outpace.optim.torch_optimizers import State, TorchOptimizer
from outpace.real.collective.buffers import Digests
from outpace.real.net.messages import Compared
from outpace.real.node.peer import PeerWorker
from outpace.real.node.peer_models import PeerModels
from outpace.real.script.parameters import InPlace, WithBuffers, load_own
from outpace.real.script.trainer import ScriptTrainer
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.parameter_block import TensorBlock, parameter_block
from outpace.sync.peers.context import CommonParameters, OwnParameters, Parameters
from outpace.sync.peers.parameters import Common, Replica, SharedModel


class ScriptModels(PeerModels):
    """Parameters that the optimizer of the script changes."""

    trainer: ScriptTrainer

    def __init__(
        self,
        process: PeerWorker,
        experiment: Experiment,
        trainer: ScriptTrainer,
        buffers: AveragedBuffers,
    ) -> None:
        self.trainer, self._process, self._optimizer = trainer, process, experiment.optimizer
        self._script, self._strategy = trainer.script, process.strategy
        self._buffers = buffers
        numbers = numbers_in(self._script.settings()) if self._strategy.uses_replica else ()
        self._trailer = Trailer(len(self._script.parameters), numbers, buffers.layout)
        self._in_place = InPlace(
            self._script, self._trailer, buffers, process.changed, process.stepped
        )
        trailer = self._buffers.layout if self._strategy.has_own else self._trailer
        self.tail, self.tail_dtype = trailer.elements, trailer.dtype
        self.averages_in_place = self._strategy.averages_gradients
        self.device = self._script.device
        # The common parameters, if the model contains the worker's own parameters or a replica.
        self.shared: SharedModel | None = None
        self._block: ScriptBlock  # optimizer of the common parameters, with replicas
        # view of these parameters, or of the replica: the parameters in the model
        self._shown: Value | None = None
        # The settings in the present all-reduce, and the iteration of the settings.
        self._compared: tuple[Settings, int] = [], 0
        self._has_differed = False  # True once the user was told that something differs

    def parameters(self, *, on_gpu: bool = False) -> torch.Tensor:
        self._script.exchanged_there |= on_gpu
        return self._script.flat()

    def start_from(self, parameters: torch.Tensor) -> None:
        self._script.load([parameters])

    def begin_iterations(self) -> None:
        """Treat the model buffers as equal in all workers, before the first iteration."""
        self._buffers.begin()

    def prepare(self) -> None:
        strategy, process = self._strategy, self._process
        if self.holds_state:
            self._share_model()
        elif strategy.has_common and strategy.has_own:
            block = parameter_block(self._script.flat(), strategy.common_optimizer(self._optimizer))
            self.shared = SharedModel(block, process.workers, process.changed)

    def _share_model(self) -> None:
        """Create common parameters with an optimizer like the script's, and their replicas."""
        script, settings = self._script, self._script.settings
        kind, groups = type(script.optimizer).__name__, script.places(self._all)

        def new_block(device: torch.device | None, *, leaves_buffers: bool = False) -> ScriptBlock:
            flat = script.flat()
            buffers = self._buffers.read(flat.device)
            here = flat if device is None else flat.to(device)
            parameters = TensorBlock(here, TorchOptimizer(kind, groups, settings()))
            return ScriptBlock(
                parameters, buffers, self._trailer, settings, leaves_buffers=leaves_buffers
            )

        self._block = new_block(None)
        replicas = replicas_of_scripts(
            kind,
            groups,
            self._trailer,
            settings,
            # The device on which the script computes gradients; values may be exchanged on another
            # one.
            partial(new_block, script.device, leaves_buffers=True),
        )
        self.shared = SharedModel(self._block, self._process.workers, self._committed, replicas)
        if script.has_taken_steps():
            self.load_state()

    def _committed(self, gradients: int) -> None:
        """Load the mean of the model buffers, after a commit to the common parameters."""
        self._buffers.load(self._block.buffers)
        self._process.changed(gradients)

    @property
    def _all(self) -> slice:
        """The whole of the flat parameters."""
        return slice(0, sum(self._script.layers))

    @property
    def holds_state(self) -> bool:
        """True if this object has an optimizer's state in addition to the script's own."""
        return self._strategy.uses_replica

    def read_state(self) -> dict[int, State]:
        """Return a copy of this state, by number of the parameter."""
        assert self.shared is not None
        return self._script.joined_state([self.shared.optimizer_state()], [self._all])

    def load_state(self) -> None:
        """Replace this state by the state of the script's optimizer."""
        assert self.shared is not None
        self.shared.load_optimizer_state(self._script.state_within(self._all))

    def _flat(self, value: Value) -> Value:
        """Return the parameters in a value of the common parameters or of a replica."""
        return taken_apart(value, self._buffers.layout.elements)[0] if self.holds_state else value

    # -- checkpoints -----------------------------------------------------------------

    def common_state(self) -> tuple[Value, OptimizerState, int]:
        if self.shared is None:
            return self._script.flat(), {}, 0
        value, optimizer, gradients = self.shared.state()
        return self._flat(value), optimizer, gradients

    def restore(self, state: ShardState, own: ShardState | None) -> None:
        value = state.parameters
        if self.holds_state:
            parameters = whole(value)
            assert isinstance(parameters, torch.Tensor)
            self._script.load([parameters])
            value = value_with(parameters, self._block.buffers)
        else:
            load_own(self._script, state, own)
        if self.shared is not None:
            self.shared.restore(value, state.optimizer, state.pushes, state.version)

    def own_state(self, *, differs: bool) -> tuple[OptimizerState, Value | None] | None:
        if not self._strategy.saved_apart:
            return None  # the file of the script contains its model
        flat = whole(self._in_place.read())
        assert isinstance(flat, torch.Tensor)
        return {}, flat

    # ---------------------------------------------------------------------------------

    def state_digest(self) -> str:
        return self._script.state_digest() if self._strategy.has_common else ""

    def common(self) -> CommonParameters:
        return self._in_place if self.shared is None else Common(self.shared)

    def own(self) -> OwnParameters:
        if self._buffers.layout.elements:
            return WithBuffers(self._in_place, self._buffers)
        return self._in_place

    def change_own(self, by: torch.Tensor) -> None:
        self._in_place.change(by)

    def now_trained(self) -> Value:
        if self.shared is not None:
            return self._flat(self.shared.newest.value)
        return self._in_place.read()

    def version_of(self, at: Parameters) -> int | None:
        if isinstance(at, Replica):
            return at.version
        return None if self._strategy.has_own else self._process.version

    @contextmanager
    def computing_at(self, at: Parameters) -> Iterator[Sequence[Block]]:
        if isinstance(at, Replica) and (value := at.read()) is not self._shown:
            self._shown = value
            self._script.load([self._flat(value)])
        with self._in_place.unchanged():
            yield []  # the parameters are in the model

    # -- what is equal in all workers --------------------------------------------------

    def digests(self, number: int) -> Digests:
        strategy = self._strategy
        model = settings = NONE
        if strategy.has_common and model_is_due(number):
            model = model_digest(self._common_tensors())
        if strategy.averages_gradients or strategy.uses_replica:
            self._compared = self._compared_settings(), self.trainer.iteration
            settings = settings_digest(self._compared[0])
        return Digests(model, settings)

    def compare(self, number: int, digests: Mapping[int, Digests]) -> None:
        models = who_differ({worker: each.model for worker, each in digests.items()})
        settings = who_differ({worker: each.settings for worker, each in digests.items()})
        if settings is not None and not self._has_differed:
            self._has_differed = True
            if self._process.worker in settings:
                text, iteration = json.dumps(self._compared[0]), self._compared[1]
                self._process.coordinator.send(Compared("settings", iteration, text))
        elif models is not None and not self._has_differed:
            self._has_differed = True
            self._process.warn(differing_models(*models, number))

    def _common_tensors(self) -> Sequence[torch.Tensor]:
        if self.shared is not None:
            return parts(self._flat(self.shared.newest.value))
        return self._script.parameters

    def _compared_settings(self) -> Settings:
        """Return the settings that must be equal in all workers, as plain data."""
        settings = self._script.used_settings()
        return without_numbers(settings) if self._strategy.uses_replica else settings

    def refused(self) -> None:
        self.trainer.refuse_gradient()

    def take_gradient(self) -> Sequence[Block | None]:
        """Return the script's gradient, with its trailer if the worker has no own parameters."""
        # If gradients are averaged in place, `WireBuffer.write` checks them.
        found = self.trainer.gradient_in_place(check=not self.averages_in_place)
        if found is None or self._strategy.has_own:
            return [found]
        script, trailer = self._script, self._trailer
        settings = script.settings() if trailer.numbers else ()
        buffers = self._buffers.read(found.parts[0].device)
        return [trailer.appended(found.parts, set(script.unused), settings, buffers)]
