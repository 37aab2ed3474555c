"""Decides whether a run goes on when it has lost processes, with others in their place or not."""

from __future__ import annotations

from collections.abc import Mapping

from outpace.engine.losses import Follows, follows, not_restarted
from outpace.engine.scripts.sameness import SameGradients
from outpace.errors import RunError
from outpace.real.coordinator.recovery.replacements import Replacements
from outpace.real.coordinator.roles import RunState
from outpace.real.coordinator.saving.base import Checkpoints
from outpace.real.coordinator.saving.kept_scripts import KeptScripts
from outpace.real.coordinator.with_servers import WithServers
from outpace.real.coordinator.without_servers import WithoutServers
from outpace.real.net.messages import TrainingDone
from outpace.sync.membership.machine import Removed
from outpace.sync.messages import WireMessage


class Survival:
    """Brings lost processes back, or has the run go on without them.

    Args:
        checkpoints: those of the run; None: none are taken.
        kept: what the scripts of new processes go on with.

    Attributes:
        replacements: of workers; None before the training, and in a run without servers.
    """

    def __init__(
        self,
        run: RunState,
        architecture: WithServers | WithoutServers,
        checkpoints: Checkpoints | None,
        first_gradients: SameGradients,
        kept: KeptScripts,
    ) -> None:
        self._run, self._roles, self._architecture = run, run.roles, architecture
        self._checkpoints, self._first_gradients, self._kept = checkpoints, first_gradients, kept
        self.replacements: Replacements | None = None

    def begin(self) -> None:
        """The training begins."""
        self._run.has_begun = True
        architecture = self._architecture
        if isinstance(architecture, WithServers):
            self.replacements = Replacements(
                self._run, architecture, self._kept, self.has_lost, self._has_begun_again
            )

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a process; False if it is not about a process that comes back."""
        return self.replacements is not None and self.replacements.take(name, message)

    def may_join(self, name: str) -> bool:
        """True if a process of this name, which has joined, is lost and another one may join."""
        return self.replacements is not None and self.replacements.may_join(name)

    def is_replaced(self, name: str) -> bool:
        """The process of this name has ended: return True if another one takes its place."""
        return self.replacements is not None and self.replacements.is_replaced(name)

    def killed_at_its_end(self, name: str) -> None:
        """A process that had finished was killed: its last messages to servers may be lost."""
        if self.replacements is not None:
            self.replacements.killed_at_its_end(name)

    def go_on_without(self, lost: Mapping[str, RunError]) -> bool:
        """Bring lost processes back, or go on without them; False if that cannot be."""
        goes_on = self._run.has_begun and self._can_go_on(lost)
        if goes_on:
            for each in self._run.observers:
                each.survived(lost)
        return goes_on

    def _can_go_on(self, lost: Mapping[str, RunError]) -> bool:
        if self.replacements is not None:
            return self.replacements.take_losses(lost)
        architecture, roles = self._architecture, self._roles
        assert isinstance(architecture, WithoutServers)
        has_scripts = any(join.follows for join in roles.joined.values())
        is_ending = self._run.stop_reason is not None
        if not all(map(architecture.has_left, lost)) and (has_scripts or not is_ending):
            return False
        for name, error in lost.items():  # the training does not need it any more
            self._run.log(f"{error}; the run ends without it")
            architecture.lose(name)
            self.has_lost(name)
            for each in self._run.observers:
                each.recovered(Removed(roles.numbers[name], 0))
        return True

    def follows(self, name: str) -> Follows:
        """Return what follows the loss of a process without which the run cannot go on."""
        run, roles = self._run, self._roles
        return follows(
            run.experiment,
            is_server=name not in roles.numbers,
            has_begun=run.has_begun,
            has_exited=name in roles.exited,
            can_restart=run.processes.all_again,
        )

    def why_not_again(self, name: str) -> str:
        """Return why a lost process with which the run ends is not started again.

        As the end of a line; empty if there is nothing to say.
        """
        roles, is_ending = self._roles, self._run.stop_reason is not None
        if name not in roles.workers or name in roles.exited or is_ending:
            return ""
        return not_restarted(self._run.experiment)

    def has_lost(self, name: str) -> None:
        """The run goes on without this worker."""
        self._run.processes.launcher.kill(name)
        if self._checkpoints is not None:
            self._checkpoints.left(name, ended=False)
        self._first_gradients.has_left(name)
        self._run.announced.add(name, TrainingDone())

    def _has_begun_again(self, worker: int) -> None:
        """The new process of this worker begins with its work."""
        if self._checkpoints is not None:
            self._checkpoints.began(worker)
        for each in self._run.observers:
            each.began(worker)
