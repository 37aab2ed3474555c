"""Scripts that call `outpace.attach`: `optimizer.step()` hands over the gradient.

The step gets the next parameters in return. This file has everything that does not depend on the
runtime: the state of the optimizer, and changes of the parameters between two steps. A runtime
implements a `StepDriver`: what a step hands over, and what it gets back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch

from outpace.config.experiment import Experiment
from outpace.engine.momentum import stale_momentum
from outpace.engine.scripts.ending import RunOver
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.taken_over import Closure, take_over
from outpace.engine.scripts.watched import WatchedGradients
from outpace.engine.scripts.watched_parameters import WatchedParameters
from outpace.engine.scripts.worker import Driver, ScriptWorker
from outpace.errors import ConfigError
from outpace.optim.torch_optimizers import State
from outpace.support.place import HERE
from outpace.tasks.abort_points import Computation


class StepDriver(Driver, Protocol):
    """The driver of a script that calls `outpace.attach`."""

    script: ScriptModel
    gradients: WatchedGradients | None  # gradients that the backward pass has made, with `overlap`
    holds_state: bool  # False: the script's optimizer takes its own steps and has its own state
    carries: bool  # see `WatchedParameters`

    @property
    def iteration(self) -> int:
        """The iteration that the script computes; it may compute it again."""

    def join(self) -> bool:
        """Join the run.

        Returns:
            True if the script had ended at the checkpoint from which the run is resumed.
        """

    def restore(self) -> None:
        """Put the script into the state with which it begins its first iteration."""

    def begin(self) -> None:
        """Wait for the start of the first iteration, with its parameters in the model."""

    def computes(self) -> None:
        """Note that the script begins to compute a gradient."""

    def computed(self) -> int:
        """Note that the gradient is complete; return its iteration."""

    def step(self, *, sets: bool) -> None:
        """Hand over the gradient; return when the model has the next parameters.

        Args:
            sets: True: the script has changed its own parameters.
        """

    def abortable(self) -> AbstractContextManager[Computation]:
        """See `outpace.abortable`."""

    def state(self) -> Mapping[int, State]:
        """Return the whole state of the optimizer by number of the parameter.

        Raises RunError in processes that the script forks.
        """

    def load_state(self) -> None:
        """Replace the state by the state of the script's optimizer."""


class AttachedScript(ScriptWorker):
    """A script whose `optimizer.step()` hands over a gradient and gets the next parameters."""

    def __init__(self, driver: StepDriver, experiment: Experiment) -> None:
        super().__init__(driver)
        self._steps, self._script, self._experiment = driver, driver.script, experiment
        self._has_loaded = False  # True from `load_state_dict` to the next step
        # A key in the optimizer's state while the real state is elsewhere; it is missing if the
        # script has cleared the state.
        self._mark = torch.nn.Parameter(torch.empty(0))
        # Digest of the state that the script has read since its last step, unless the state was
        # replaced.
        self._read_digest: str | None = None
        self._parameters = WatchedParameters(
            self._script, experiment, driver.name, carries=driver.carries
        )
        take_over(self._script.optimizer, self.step, self._with_whole_state, self._loading_state)

    def start(self) -> None:
        """Join the run, and wait for the start of the first iteration."""
        driver = self._steps
        has_ended = driver.join()
        if driver.holds_state and not self._has_loaded:  # the script joins the run with a state
            self._clear_state()
        if has_ended:
            self.leave()
            raise RunOver(0)
        driver.restore()
        for warning in stale_momentum(self._experiment, self._script.momenta):
            HERE.tell(warning)
        driver.begin()
        self._computes()

    def _computes(self) -> None:
        """Begin to compute a gradient, with new parameters in the model."""
        self._parameters.begin()
        self._steps.computes()

    def step(self, closure: Closure = None) -> Any:
        """Hand over the gradient in the model; return when the model has the next parameters."""
        driver = self._steps
        self._require_step()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._exit_if_ended_early()
        self._script.await_gpus()
        iteration = driver.computed()
        self._script.require_as_begun(iteration)
        sets = self._parameters.at_step(iteration)
        self._read_digest = None
        if self._has_loaded:
            self._has_loaded = False
            self._clear_state()
        self._require_state_elsewhere()
        driver.step(sets=sets)
        self._computes()
        return loss

    def abortable(self) -> AbstractContextManager[Computation]:
        return self._steps.abortable()

    def leave(self, *, fetch: bool = False) -> None:
        if self._presence.is_out:
            return
        sets, own = self._parameters.leave(fetch=fetch)
        try:
            self._steps.leave(fetch=fetch, sets=sets)
        finally:
            if own is not None:
                self._script.load([own])

    def end(self, error: Exception | None) -> None:
        try:
            super().end(error)
        finally:
            if not self._presence.is_copy:
                self._parameters.close()

    # -- the state of the optimizer --------------------------------------------------------------

    # Until this worker's next step, the script's optimizer keeps a loaded state. The servers may
    # not have this state yet, or may have another worker's.

    @contextmanager
    def _with_whole_state(self) -> Iterator[None]:
        """Put the whole state into the script's optimizer, for this context.

        With servers it is their state. If all workers wait for each other, the state of all servers
        is after the same number of steps; otherwise each server sends its state as it is when it
        answers.
        """
        if self._has_loaded or not self._steps.holds_state:
            yield
            return
        self._require_between_steps()
        optimizer, found = self._script.optimizer, self._steps.state()
        number = {id(p): n for n, p in enumerate(self._script.parameters)}
        before, optimizer.state = optimizer.state, defaultdict(dict)
        for parameter in (p for group in self._script.groups for p in group):
            if id(parameter) not in number:  # frozen parameter: its state remains in the script
                state = before.get(parameter)
            else:
                state = found.get(number[id(parameter)])
            if state is not None:
                optimizer.state[parameter] = state
        self._read_digest = self._script.state_digest()
        try:
            yield
        finally:
            optimizer.state = before

    @contextmanager
    def _loading_state(self) -> Iterator[None]:
        """Pass the state that the script loads in this context to where the steps are taken.

        If the script loads a state that it has read since its last step, nothing changes, because
        other workers may have taken steps in between. accelerate does this when it wraps an
        optimizer.

        Raises:
            ConfigError: if the state can no longer be replaced.
        """
        strategy = self._experiment.peers
        if not self._presence.has_left:
            self._require_between_steps()
            if strategy is not None and strategy.uses_replica and self._steps.iteration > 0:
                raise ConfigError(
                    f"with sync.kind={strategy.kind}, optimizer.load_state_dict must be called "
                    "before the first step: later, each worker would use the state from another "
                    "commit on"
                )
        yield
        self._has_loaded = False
        if not self._steps.holds_state:
            return
        if not self._presence.is_out and self._read_digest == self._script.state_digest():
            self._clear_state()
            return
        self._read_digest = None
        self._has_loaded = True
        if not self._presence.is_out:
            self._steps.load_state()

    def _clear_state(self) -> None:
        """Remove the state that is elsewhere from the script's optimizer."""
        self._script.clear_state()
        self._script.optimizer.state[self._mark] = {}

    def _require_state_elsewhere(self) -> None:
        """Raise ConfigError if the script has cleared a state that is not in its optimizer."""
        if self._steps.holds_state and self._mark not in self._script.optimizer.state:
            raise ConfigError(
                f"{self._name}: the script has cleared or replaced optimizer.state, but the run "
                "takes the steps with a state that it holds elsewhere: change a copy that "
                "optimizer.state_dict() returns, and load it by optimizer.load_state_dict(); "
                "{**optimizer.state_dict(), 'state': {}} begins again"
            )

    def _require_between_steps(self) -> None:
        """Raise ConfigError if parts of a gradient were sent whose step is not taken yet."""
        if self._steps.gradients is not None:
            self._steps.gradients.require_between_steps()
