"""A user's script as a worker, in every runtime.

`outpace.attach` makes an `AttachedScript`. A script whose own collectives and optimizer do the
training is another `ScriptWorker`, which follows its steps. All that does not depend on the runtime
is here: what a script may do and when, the state of its optimizer, and changes of its parameters
between two steps. A runtime implements the abstract methods: what a step hands over, and what it
gets back.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeAlias

import torch
from torch._compile import _disable_dynamo

from outpace.config.experiment import Experiment
from outpace.engine.momentum import stale_momentum
from outpace.engine.scripts.misuse import when_shared
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.running import EndedEarly, RunOver, letting_it_end, own_handler
from outpace.engine.scripts.watched import WatchedGradients
from outpace.engine.scripts.watched_parameters import WatchedParameters
from outpace.errors import ConfigError, RunError
from outpace.optim.torch_optimizers import State
from outpace.support.place import HERE
from outpace.tasks.abort_points import Computation

Closure: TypeAlias = Callable[[], Any] | None


class ScriptWorker(ABC):
    """The worker that the script of this process is: `Place.worker`.

    Args:
        name: of the worker.
    """

    def __init__(self, name: str, script: ScriptModel) -> None:
        self.name, self._script = name, script
        self._left = False  # True once the worker has left the run
        self._is_untimed = False  # True within `outpace.untimed`
        self._pid = os.getpid()

    @property
    def is_copy(self) -> bool:
        """True in a process that the script has forked: it has a copy of this object."""
        return os.getpid() != self._pid

    @property
    def is_out(self) -> bool:
        """True after the worker has left the run, and in processes that the script forks."""
        return self._left or self.is_copy

    def is_elsewhere(self) -> bool:
        """True if a forward pass of this process is not one of the training."""
        return self._is_untimed or self.is_out

    @property
    @abstractmethod
    def _is_ended_early(self) -> bool:
        """True if the run was ended early: the script then has a while to end by itself."""

    def _require_step(self) -> None:
        """Raise RunError or ConfigError unless the script may call `optimizer.step()` now."""
        if self._left and not self._is_ended_early:
            raise RunError(f"{self.name} has left the run: it cannot take another step")
        if self.is_copy:
            raise RunError(
                f"a process that {self.name} has forked is no worker: only the worker's own "
                "process can take steps"
            )
        if self._is_untimed:
            raise ConfigError(
                f"{self.name} called optimizer.step() in outpace.untimed(): a step is part of an "
                "iteration, so only what comes before or after it can be untimed"
            )

    def _exit_if_ended_early(self) -> None:
        if self._is_ended_early:
            own_handler.call()
            raise EndedEarly

    def log(self, values: Mapping[str, float]) -> None:
        """See `outpace.log`; values: by column of metrics.parquet. Also after `outpace.finish`."""
        if self.is_copy:
            raise RunError(
                f"a process that {self.name} has forked is no worker: only the worker's own "
                "process can log; return the numbers to it"
            )
        self._log(values)

    @abstractmethod
    def _log(self, values: Mapping[str, float]) -> None:
        """Keep what the script logs at this point of the run."""

    @contextmanager
    def untimed(self) -> Iterator[None]:
        """See `outpace.untimed`."""
        if self.is_elsewhere():
            yield
            return
        self._is_untimed = True
        try:
            with self._out_of_time():
                yield
        finally:
            self._is_untimed = False

    @abstractmethod
    def _out_of_time(self) -> AbstractContextManager[None]:
        """Return a context whose time is no part of an iteration."""

    @contextmanager
    def abortable(self) -> Iterator[Computation]:
        """See `outpace.abortable`; nothing is stopped."""
        yield Computation()

    def leave(self, *, fetch: bool = False) -> None:
        """Leave the run, so that no worker waits for this one. fetch: see `outpace.finish`."""
        if not self.is_out:
            self._leave_run(fetch=fetch, sets=False)

    @abstractmethod
    def _leave_run(self, *, fetch: bool, sets: bool) -> None:
        """Leave the run.

        Args:
            fetch: load the final parameters into the model.
            sets: the script has changed parameters that are its own since its last step.
        """

    def end(self, error: Exception | None) -> None:
        """Leave the run at the end of the script, or report its error; later calls do nothing."""
        if not self.is_copy:
            self._end(error)

    @abstractmethod
    def _end(self, error: Exception | None) -> None:
        """See `end`."""


class AttachedScript(ScriptWorker):
    """A script whose `optimizer.step()` hands its gradient over and gets the next parameters."""

    def take_over(
        self,
        experiment: Experiment,
        *,
        gradients: WatchedGradients | None,
        holds: bool,
        carries: bool,
    ) -> None:
        """Take over the script's optimizer; the last thing in the making of a worker.

        Args:
            gradients: with `overlap`, those that backward has made.
            holds: False if the script's optimizer takes its steps itself, and has its state.
            carries: see `WatchedParameters`.
        """
        script, self._experiment = self._script, experiment
        self._gradients, self._holds = gradients, holds
        self._has_loaded = False  # True from `load_state_dict` to the next step
        # A key in the optimizer's state while that is elsewhere: gone if the script clears it.
        self._mark = torch.nn.Parameter(torch.empty(0))
        # Digest of the state that the script has read since its last step, unless it was replaced.
        self._read_digest: str | None = None
        self._parameters = WatchedParameters(script, experiment, self.name, carries=carries)
        take_over(script.optimizer, self.step, self._with_whole_state, self._loading_state)

    def start(self) -> None:
        """Join the run; return when the first iteration may start."""
        has_ended = self._join()
        if self._holds and not self._has_loaded:  # the script comes to the run with a state
            self._clear_state()
        if has_ended:
            self.leave()
            raise RunOver(0)
        self._restore()
        for warning in stale_momentum(self._experiment, self._script.momenta):
            HERE.tell(warning)
        self._begin()

    @abstractmethod
    def _join(self) -> bool:
        """Join the run.

        Returns:
            True if the script had come to its end at the checkpoint that the run goes on from.
        """

    @abstractmethod
    def _restore(self) -> None:
        """Put the script into the state that it goes on with, before its first iteration."""

    @abstractmethod
    def _begin(self) -> None:
        """Return when the first iteration may start, with its parameters in the model."""

    def step(self, closure: Closure = None) -> Any:
        """Hand over the gradient in the model; return when the model has the next parameters."""
        self._require_step()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._exit_if_ended_early()
        self._script.await_gpus()
        self._computed()
        self._script.require_as_begun(self.iteration)
        sets = self._parameters.at_step(self.iteration)
        self._read_digest = None
        if self._has_loaded:
            self._has_loaded = False
            self._clear_state()
        self._require_state_elsewhere()
        self._hand_over_gradient(sets=sets)
        return loss

    @property
    @abstractmethod
    def iteration(self) -> int:
        """The iteration that the script computes, perhaps again."""

    def _computed(self) -> None:
        """Note that the gradient is there."""

    @abstractmethod
    def _hand_over_gradient(self, *, sets: bool) -> None:
        """Hand the gradient over; return when the model has the next parameters.

        Args:
            sets: the script has changed parameters that are its own.
        """

    def leave(self, *, fetch: bool = False) -> None:
        if self.is_out:
            return
        sets, own = self._parameters.leave(fetch=fetch)
        try:
            self._leave_run(fetch=fetch, sets=sets)
        finally:
            if own is not None:
                self._script.load([own])

    def end(self, error: Exception | None) -> None:
        try:
            super().end(error)
        finally:
            if not self.is_copy:
                self._parameters.close()

    # -- the state of the optimizer --------------------------------------------------------------

    # Until this worker's next step, the script's optimizer keeps a state that was loaded: where
    # steps are taken it may not be known yet, or it may be another worker's.

    @contextmanager
    def _with_whole_state(self) -> Iterator[None]:
        """Put the whole state into the script's optimizer, in this context.

        With servers it is theirs: after the same number of steps on all of them if all workers
        wait for each other, else as each server has it when it answers.
        """
        if self._has_loaded or not self._holds:
            yield
            return
        self._require_between_steps()
        optimizer, found = self._script.optimizer, self.fetch()
        number = {id(p): n for n, p in enumerate(self._script.parameters)}
        before, optimizer.state = optimizer.state, defaultdict(dict)
        for parameter in (p for group in self._script.groups for p in group):
            if id(parameter) not in number:  # frozen: its state stays with the script
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
        """Hand the state that the script loads in this context to where the steps are taken.

        A state that the script has read and loads again before its next step changes nothing, as
        when accelerate wraps an optimizer: other workers may have taken steps in between.

        Raises:
            ConfigError: if the state can no longer be replaced.
        """
        strategy = self._experiment.peers
        if not self._left:
            self._require_between_steps()
            if strategy is not None and strategy.uses_replica and self.iteration > 0:
                raise ConfigError(
                    f"with sync.kind={strategy.kind}, optimizer.load_state_dict must be called "
                    "before the first step: later, each worker would use the state from another "
                    "commit on"
                )
        yield
        self._has_loaded = False
        if not self._holds:
            return
        if not self.is_out and self._read_digest == self._script.state_digest():
            self._clear_state()
            return
        self._read_digest = None
        self._has_loaded = True
        if not self.is_out:
            self.replace()

    def _clear_state(self) -> None:
        """Remove the state that is elsewhere from the script's optimizer."""
        self._script.clear_state()
        self._script.optimizer.state[self._mark] = {}

    def _require_state_elsewhere(self) -> None:
        """Raise ConfigError if the script has cleared a state that is not in its optimizer."""
        if self._holds and self._mark not in self._script.optimizer.state:
            raise ConfigError(
                f"{self.name}: the script has cleared or replaced optimizer.state, but the run "
                "takes the steps with a state that it holds elsewhere: change a copy that "
                "optimizer.state_dict() returns, and load it by optimizer.load_state_dict(); "
                "{**optimizer.state_dict(), 'state': {}} begins anew"
            )

    def _require_between_steps(self) -> None:
        """Raise ConfigError if parts of a gradient have left whose step is not taken yet."""
        if self._gradients is not None:
            self._gradients.require_between_steps()

    @abstractmethod
    def fetch(self) -> Mapping[int, State]:
        """Return the whole state by number of the parameter.

        Raises RunError in processes that the script forks.
        """

    @abstractmethod
    def replace(self) -> None:
        """Replace the state by that of the script's optimizer."""


def take_over(
    optimizer: torch.optim.Optimizer,
    take_step: Callable[[Closure], Any],
    whole_state: Callable[[], AbstractContextManager[None]],
    loading_state: Callable[[], AbstractContextManager[None]],
) -> None:
    """Make `optimizer.step` call `take_step`; otherwise the optimizer behaves as before.

    Another process may hold its state. What the script saves has all of it.

    The optimizer gets its own class rather than an attribute, because schedulers and hooks wrap
    the step of the class. A scheduler made earlier has wrapped the old step as an attribute,
    which is removed.

    Args:
        whole_state: returns a context in which the optimizer has its whole state.
        loading_state: returns the context in which the script loads a state into the optimizer.

    Raises:
        ConfigError: if the script has replaced the optimizer's step.
    """
    kind: Any = type(optimizer)
    _remove_own_step(optimizer)
    has_stepped, this = False, os.getpid()

    @_disable_dynamo
    def step(self: Any, closure: Closure = None) -> Any:
        nonlocal has_stepped
        has_stepped = True
        self._opt_called = True  # schedulers check it
        with letting_it_end():
            return take_step(closure)

    @_disable_dynamo
    def stepped(*_: Any) -> None:
        """Refuse a step by a method that the script got before: no other worker knows of it."""
        nonlocal has_stepped
        is_of_run, has_stepped = has_stepped, False
        if not is_of_run and os.getpid() == this:
            raise ConfigError(
                f"worker-{HERE.number}: the script took a step by a method of the optimizer that "
                "it got before outpace.attach, so only this worker has taken it: get "
                "optimizer.step after outpace.attach"
            )

    def add_param_group(self: Any, param_group: dict[str, Any]) -> None:
        raise ConfigError(
            "a parameter group was added to the optimizer, but the run shares those that it had "
            f"{when_shared()}: add all groups before, or train with DistributedDataParallel and "
            "sync.kind=ssgd"
        )

    def load_state_dict(self: Any, state_dict: dict[str, Any]) -> None:
        with loading_state():
            kind.load_state_dict(self, state_dict)

    def state_dict(self: Any) -> Any:
        with whole_state():
            return kind.state_dict(self)

    def reduce(self: Any, _: Any) -> Any:
        """Copy as the original class; protocol 0, because protocols 2 and up check the class."""
        with whole_state():
            make, (_, *arguments), *rest = kind.__reduce_ex__(self, 0)
        return (make, (kind, *arguments), *rest)

    hooked: Any = torch.optim.Optimizer.profile_hook_step(step)
    hooked.hooked = hooked._wrapped_by_lr_sched = True  # prevents further wrapping
    members = {
        "step": hooked,
        "add_param_group": add_param_group,
        "load_state_dict": load_state_dict,
        "state_dict": state_dict,
        "__reduce_ex__": reduce,
        # GradScaler then always calls step(), and sets `found_inf` if the step is to be skipped.
        "_step_supports_amp_scaling": True,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
    }
    optimizer.__class__ = type(kind.__name__, (kind,), members)
    optimizer.register_step_post_hook(stepped)


def _remove_own_step(optimizer: torch.optim.Optimizer) -> None:
    """Remove an attribute that hides the step of the class, if it only calls that.

    Raises:
        ConfigError: if it does more, such as to clip the gradient.
    """
    own = found = optimizer.__dict__.pop("step", None)
    while hasattr(found, "_wrapped_by_lr_sched"):  # made by a scheduler
        found = found.__wrapped__
    if found is not None and getattr(found, "__func__", found) is not type(optimizer).step:
        optimizer.step = own  # type: ignore[method-assign]
        raise ConfigError(
            f"the step of the {type(optimizer).__name__} was replaced by another function, which "
            "the run would leave out: call what it does before optimizer.step(), or register it "
            "by optimizer.register_step_pre_hook"
        )
