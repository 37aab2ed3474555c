"""Finds changes of parameters that a script makes itself, between the steps of its optimizer.

Examples are weights that are clamped or masked, Lookahead, and a checkpoint that is loaded in
mid-run. With servers and with hpsgd, the parameters that all workers share are not in the script's
model. They would replace the change in the next step, so the change is refused. With other
strategies the model has the worker's own parameters, and the change remains; in virtual time it is
reported to the simulation, which holds these parameters.

Only the values count: a script may put other values into its model, such as averaged ones for an
evaluation, and then restore the first ones.

Steps of optimizers that the run has not taken over are found as well. If such an optimizer has
parameters of the model, its steps would be lost, or made by each worker alone, so they are refused.
An optimizer of other parameters trains on each worker alone; a warning says so. An optimizer that
wraps the run's optimizer and calls its steps (Lookahead, accelerate's), or that the run's optimizer
contains (SAM's), is accepted.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from outpace.config.experiment import Experiment
from outpace.engine.distributed.call import not_compiled
from outpace.engine.distributed.where import innermost, where
from outpace.engine.scripts.fingerprints import Fingerprints
from outpace.engine.scripts.model import ScriptModel
from outpace.errors import ConfigError
from outpace.support.place import HERE
from outpace.support.words import plural, shortened

_FIRST_STEPS: Final = 3  # within these first steps one must have a gradient


@not_compiled
class OtherOptimizers:
    """Watches each step of the optimizers of this process until the script leaves the run."""

    def __init__(self, script: ScriptModel) -> None:
        self._script = script
        self._pid = os.getpid()
        self._steps = 0  # number of steps that the optimizer of the run has begun
        self._is_stepping = False  # the optimizer of the run is taking a step
        # For each other optimizer that is taking a step: the number of the run's steps when it
        # began.
        self._begun = weakref.WeakKeyDictionary[torch.optim.Optimizer, int]()
        self._has_told = False
        self._handles = [
            register_optimizer_step_pre_hook(self._begins),
            register_optimizer_step_post_hook(self._ended),
        ]

    def close(self) -> None:
        """Stop watching steps."""
        for handle in self._handles:
            handle.remove()

    def _begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if optimizer is self._script.optimizer:
            self._steps += 1
            self._is_stepping = True
        elif not self._is_stepping:
            self._begun[optimizer] = self._steps

    def _ended(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if optimizer is self._script.optimizer:
            self._is_stepping = False
        elif self._begun.pop(optimizer, None) == self._steps and os.getpid() == self._pid:
            self._look_at(optimizer)

    def _look_at(self, optimizer: torch.optim.Optimizer) -> None:
        """Judge an optimizer that has taken a step without the run's optimizer.

        Raises:
            ConfigError: if the optimizer has parameters of the model.
        """
        trained = {id(p) for p in _trained_by(optimizer)}
        names = [name for name, p in self._script.model.named_parameters() if id(p) in trained]
        other = f"{type(optimizer).__name__} at {where(innermost())}"
        if names:
            raise ConfigError(
                f"worker-{HERE.number}: the optimizer {other} took a step of parameters of the "
                f"model ({shortened(names)}), but the run has the steps of another one, the "
                f"{type(self._script.optimizer).__name__} that it began with: use one optimizer "
                "with parameter groups. For a new phase set their settings (lr=0 in groups that "
                "rest), and load_state_dict({**optimizer.state_dict(), 'state': {}}) if its state "
                "is to begin anew. Or use DistributedDataParallel with sync.kind=ssgd, where a "
                "script may have several"
            )
        if trained and HERE.workers > 1 and not self._has_told:
            self._has_told = True
            HERE.tell(
                f"the optimizer {other} trains parameters that are not in the model of the run: "
                "each worker trains them alone. To share them, put all into one module with one "
                "optimizer, or use DistributedDataParallel with sync.kind=ssgd"
            )


def _trained_by(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Return the parameters of an optimizer that have a gradient."""
    return (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None)


class WatchedParameters:
    """Compares a script's parameters at its step with the parameters that its model was given.

    Args:
        worker: name of the worker.
        carries: True if the script's own parameters are also held elsewhere, so that a change must
            be sent there.
    """

    def __init__(
        self, script: ScriptModel, experiment: Experiment, worker: str, *, carries: bool
    ) -> None:
        strategy = experiment.peers
        self._script, self._worker = script, worker
        self._kind = f"sync.kind={getattr(experiment.sync, 'kind', 'several strategies')}"
        self._has_servers = strategy is None
        self._loses = strategy is None or strategy.uses_replica
        # The steps of an outer optimizer produce the common parameters.
        self._is_outer = strategy is not None and strategy.has_own and strategy.has_common
        self._is_saved = experiment.checkpoint is not None
        self._looks = self._loses or self._is_outer or self._is_saved or carries
        self._given: Fingerprints | None = None
        self._has_told = False
        # A computation that is cut off may leave no gradient.
        self._without_gradient = 0 if experiment.cut_off is None else _FIRST_STEPS
        held = {id(p) for group in script.groups for p in group}
        self._not_held = {
            name: p
            for name, p in script.model.named_parameters()
            if p.requires_grad and id(p) not in held and p.layout is torch.strided
        }
        # The ones that had a gradient at the last step, and their values.
        self._not_held_before: tuple[list[str], Fingerprints | None] = [], None
        self._others = OtherOptimizers(script)
        if self._not_held and HERE.number == 0:
            count = plural(len(self._not_held), "trainable parameter")
            print(  # noqa: T201
                f"outpace: {count} of the model not in the optimizer, so not trained by the run: "
                f"{shortened(list(self._not_held))}",
                file=sys.stderr,
            )

    def begin(self) -> None:
        """Note that the model has the parameters for the script's next gradient."""
        if self._looks:
            self._given = Fingerprints(self._script.parameters)

    def at_step(self, iteration: int) -> bool:
        """Return True if the script has changed its own parameters before this step.

        Raises:
            ConfigError: if the change would be lost, or parameters have another dtype or shape.
        """
        self._look_at_not_held()
        self._look_for_gradients()
        changed = self._changed()
        if not changed:
            return False
        if self._loses:
            raise ConfigError(self._lost(changed, iteration))
        if not self._has_told:
            self._has_told = True
            self._warn_of_own(f"the script changed {self._named(changed)} between two steps")
        return True

    def _warn_of_own(self, change: str) -> None:
        """Warn about effects that a change of the worker's own parameters does not have."""
        if self._is_outer:
            HERE.tell(
                f"{change}: with {self._kind} that is a part of the worker's own steps, so a limit "
                "such as clamping does not hold for the common parameters, which are the result"
            )
        if self._is_saved:
            HERE.tell(
                f"{change}: a checkpoint has the parameters after the step, so a run that is "
                "resumed from it lacks the last change, unless the script makes it at the "
                "beginning of the iteration"
            )

    def leave(self, *, fetch: bool) -> tuple[bool, torch.Tensor | None]:
        """Note that the script takes no more steps.

        Args:
            fetch: True if the script leaves by `outpace.finish`.

        Returns:
            True if the script has changed its own parameters since its last step; and the
            parameters that `finish` must leave in the model, if the result of the run is different.
        """
        self.close()
        changed = self._changed()
        if not changed:
            return False, None
        if not fetch or not (self._loses or self._is_outer):
            return not self._loses, None
        HERE.tell(
            f"the script set {self._named(changed)} after its last step: outpace.finish() leaves "
            f"them in its model, but they are not the result of the run: with {self._kind} "
            f"{self._holder} the result"
        )
        return not self._loses, self._script.flat()

    def close(self) -> None:
        """Stop watching steps of optimizers, because the process may continue after the run."""
        self._others.close()

    def _changed(self) -> list[int]:
        """Return the numbers of the parameters that the script has changed."""
        if self._given is None:
            return []
        return Fingerprints(self._script.parameters).changed(self._given)

    def _named(self, numbers: Iterable[int]) -> str:
        names = [self._script.names[number] for number in numbers]
        return f"the parameter{'s' * (len(names) > 1)} {shortened(names)}"

    @property
    def _holder(self) -> str:
        return "the servers have" if self._has_servers else "parameters besides the model are"

    def _lost(self, changed: list[int], iteration: int) -> str:
        when, instead = f"between its steps {iteration - 1} and {iteration}", ""
        if not iteration:
            begin = "outpace.attach" if HERE.has_attached else "the first forward pass"
            when, instead = "before its first step", f"change them before {begin}, or "
        held = "the servers have the" if self._has_servers else "the workers have common"
        alone = " (from two workers on; one needs no launcher)" if HERE.workers == 1 else ""
        return (
            f"{self._worker}: the script changed {self._named(changed)} {when}. With {self._kind} "
            f"{held} parameters, which would replace the change: {instead}take sync.kind=ssgd or "
            f"local-sgd, where each worker keeps it{alone}"
        )

    def _look_for_gradients(self) -> None:
        """Warn if no parameter has a gradient in the first steps, which then train nothing."""
        if self._without_gradient >= _FIRST_STEPS:
            return
        if any(p.grad is not None for p in self._script.parameters):
            self._without_gradient = _FIRST_STEPS
            return
        self._without_gradient += 1
        if self._without_gradient == _FIRST_STEPS:
            HERE.tell(
                f"no parameter of the optimizer had a gradient in the first {_FIRST_STEPS} steps, "
                "which therefore trained nothing: compute the loss from the model that "
                "the optimizer has, without detach or no_grad, and call backward before step"
            )

    def _look_at_not_held(self) -> None:
        """Warn if parameters that are not in the optimizer are trained."""
        found = {name: p for name, p in self._not_held.items() if p.grad is not None}
        if not found or HERE.workers == 1:
            return
        (names, before), now = self._not_held_before, Fingerprints(list(found.values()))
        self._not_held_before = list(found), now
        changed = now.changed(before) if before is not None and names == list(found) else []
        if changed:
            HERE.tell(
                f"the script trains the parameter {names[changed[0]]}, which is not in the "
                "optimizer of the run: each worker changes it alone; add it to the optimizer"
            )
            self._not_held.clear()
