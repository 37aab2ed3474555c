"""Handles processes of the run that die or cannot be reached any more.

A loss becomes known in three ways: the launcher reports that the process has ended, its connection
to the coordinator has ended, or, for a server, a worker has lost the connection to it. The run does
not end at once: a message about the error may still arrive, and a more direct report may follow,
which then names the cause. If a server is still connected to this process one lease after a worker
has lost it, the server exists: then the worker counts as lost. Once a run has started,
`on_worker_loss` says what happens when a worker is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from outpace import errors
from outpace.engine.scripts.requirements import with_name
from outpace.errors import ConfigError, DivergenceError, OutpaceError, RunError
from outpace.real.coordinator.run_state import Known, RunState, Suspect
from outpace.real.coordinator.survival import Survival
from outpace.real.net.report_messages import ProcessFailed
from outpace.support.processes.forking import has_exited
from outpace.support.units import Time, nanoseconds
from outpace.sync.membership.events import Finished, Loss

_LAST_WORDS_S: Final = 0.5  # seconds for messages that a process sent before it died
_LONGEST_LAST_WORDS_S: Final = 10.0  # seconds to wait while messages are unread
_LOOK_AGAIN_S: Final = 0.02
_BEFORE: Final = " before it was done"


class Losses:
    """The losses and failures of the processes of a run, until their consequences are decided.

    survival: decides about the consequences.
    """

    def __init__(self, run: RunState, survival: Survival) -> None:
        self._run, self._survival, self._suspects = run, survival, run.suspects
        self._kernel, self._lease_s = run.kernel, run.setting.lease_s
        self._reporters: dict[str, list[str]] = {}  # workers that lost a server, by server

    def process_finished(self, name: str) -> None:
        self._suspects.pop(name, None)
        self._survival.tell(Finished(name))

    def process_failed(self, name: str, failed: ProcessFailed) -> None:
        """Raise the error that a process reports, unless it is the loss of a server."""
        run = self._run
        if run.table.role(name).has_left:
            return
        self._suspect(name).has_failed = True
        if failed.lost in run.servers:
            self._report(name, failed.lost)
        elif run.early:
            run.announced.add(name, failed)
        else:
            raise _error(name, failed)

    def connection_lost(self, name: str) -> None:
        how = f"is lost: its connection closed, or was silent for {self._lease_s:g} s"
        self._lose(name, Known.SILENT, how)

    def process_ended(self, name: str, how: str) -> None:
        """Handle the launcher's report that this process has ended."""
        if self._survival.is_replaced(name):
            return
        if self._run.table.role(name).has_finished:
            if not has_exited(how):
                self._survival.killed_at_its_end(name)
            return
        suspect = self._suspect(name)
        suspect.has_ended, suspect.has_exited = True, has_exited(how)
        self._lose(name, Known.ENDED, how + _BEFORE)

    def _suspect(self, name: str) -> Suspect:
        return self._suspects.setdefault(name, Suspect())

    def _report(self, worker: str, server: str) -> None:
        """Note that a worker ends because it has lost the connection to a server."""
        self._reporters.setdefault(server, []).append(worker)
        self._lose(server, Known.REPORTED, f"is lost: {worker} lost the connection to it")
        self._kernel.call_at(self._kernel.now + nanoseconds(self._lease_s), self._doubt, server)

    def _doubt(self, server: str) -> None:
        """If a server is still connected here, count the workers that have lost it as lost."""
        if self._run.early or not self._is_doubtful(server):
            return
        del self._suspects[server]
        for worker in self._reporters.pop(server):
            suspect = self._suspect(worker)
            suspect.has_failed = suspect.has_exited = False
            known = Known.ENDED if suspect.has_ended else Known.SILENT
            self._lose(worker, known, f"lost the connection to {server}, which others still have")

    def _is_doubtful(self, name: str) -> bool:
        suspect = self._suspects.get(name)
        is_reported = suspect is not None and suspect.known is Known.REPORTED
        return is_reported and name in self._run.listener.peers

    def _lose(self, name: str, known: Known, how: str) -> None:
        """Start the decision about a loss, unless it is known as directly or does not matter."""
        role, suspect, now = self._run.table.role(name), self._suspect(name), self._kernel.now
        if role.has_finished or role.has_left or suspect.has_failed or suspect.known <= known:
            return
        if not suspect.is_lost:
            suspect.since = now
        suspect.known, suspect.how = known, how
        if self._run.early:
            self._run.announced.add(name, ProcessFailed("RunError", how))
        else:
            look = now + nanoseconds(_LAST_WORDS_S * (0.5 if known is Known.ENDED else 1.0))
            self._kernel.call_at(look, self._decide, look + nanoseconds(_LONGEST_LAST_WORDS_S))

    @property
    def _undecided(self) -> list[str]:
        """Return the lost processes without a decision, the most directly known first."""
        names = [
            name
            for name, suspect in self._suspects.items()
            if suspect.is_lost and not suspect.has_failed and not self._is_doubtful(name)
        ]
        return sorted(names, key=lambda name: self._suspects[name].known)

    def _decide(self, until: Time) -> None:
        """Start the decision once no message of the lost processes is unread."""
        names, now = self._undecided, self._kernel.now
        if not names:
            return
        if now < until and self._may_still_be_heard(names):
            self._kernel.call_at(now + nanoseconds(_LOOK_AGAIN_S), self._decide, until)
            return
        losses = []
        for name in names:
            suspect = self._suspects[name]
            has_ended = suspect.known is Known.ENDED
            losses.append(Loss(name, suspect.how, has_ended, suspect.has_exited, suspect.since))
        self._survival.take_losses(losses)
        for name in names:
            del self._suspects[name]

    def _may_still_be_heard(self, lost: Collection[str]) -> bool:
        """True if messages are unread: this process may have been busy computing.

        When the end of a connection is known, all its messages have arrived. The launcher's report
        says how the process ended, and may come later than the end of the connection.
        """
        ended = {name for name in lost if self._suspects[name].known is Known.ENDED}
        listener, launcher = self._run.listener, self._run.launcher
        return (
            listener.unread
            or not ended.isdisjoint(listener.peers)
            or any(launcher.is_ending(name) for name in lost if name not in ended)
        )


def _error(name: str, failed: ProcessFailed) -> OutpaceError:
    kinds = {"ConfigError": ConfigError, "DivergenceError": DivergenceError}
    kind = kinds.get(failed.kind, RunError)
    is_ours = failed.kind in vars(errors)
    text = failed.text if is_ours else f"{failed.kind}: {failed.text}"
    return kind(with_name(name, text))
