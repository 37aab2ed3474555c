"""Handles processes of the run that die or can no longer be reached.

A loss is known in three ways: the launcher says that the process has ended, its connection to the
coordinator is gone, or, for a server, a worker has lost the connection to it. The run does not end
at once: a message that says what went wrong may still be on its way, and a more direct report may
follow, which then names the cause. A server that this process still hears a lease after a worker
has lost it is there: then it is the worker that is lost. Once a run has started, `on_worker_loss`
says what happens when a worker is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from outpace import errors
from outpace.engine.scripts.misuse import with_name
from outpace.errors import ConfigError, DivergenceError, OutpaceError, RunError
from outpace.real.coordinator.recovery.survival import Survival
from outpace.real.coordinator.roles import ENDED, REPORTED, SILENT, RunState
from outpace.real.net.report_messages import ProcessFailed
from outpace.support.processes.forking import has_exited
from outpace.support.units import Time, nanoseconds
from outpace.sync.membership import Loss

_LAST_WORDS_S: Final = 0.5  # for messages that a process sent before it died
_LONGEST_LAST_WORDS_S: Final = 10.0  # while messages are unread
_LOOK_AGAIN_S: Final = 0.02
_BEFORE: Final = " before it was done"


class Losses:
    """The losses and failures of the processes of a run, until it is decided what follows.

    survival: decides it.
    """

    def __init__(self, run: RunState, survival: Survival) -> None:
        self._run, self._survival, self._roles = run, survival, run.roles
        self._kernel, self._lease_s = run.kernel, run.setting.lease_s
        self._reporters: dict[str, list[str]] = {}  # workers that lost a server, by server

    def process_finished(self, name: str) -> None:
        self._roles.finished.add(name)
        self._roles.lost.pop(name, None)

    def process_failed(self, name: str, failed: ProcessFailed) -> None:
        """Raise the error that a process reports, unless it is the loss of a server."""
        roles = self._roles
        if name in roles.without:
            return
        roles.failed.add(name)
        if failed.lost in roles.servers:
            self._report(name, failed.lost)
        elif self._run.early:
            self._run.announced.add(name, failed)
        else:
            raise _error(name, failed)

    def connection_lost(self, name: str) -> None:
        reason = f"is lost: its connection closed, or was silent for {self._lease_s:g} s"
        self._lose(name, SILENT, reason)

    def process_ended(self, name: str, how: str) -> None:
        """The launcher says that this process has ended."""
        roles, survival = self._roles, self._survival
        if survival.is_replaced(name):
            return
        if name in roles.finished and not has_exited(how):
            survival.killed_at_its_end(name)
            return
        roles.ended.add(name)
        if has_exited(how):
            roles.exited.add(name)
        self._lose(name, ENDED, how + _BEFORE)

    def _report(self, worker: str, server: str) -> None:
        """A worker ends because it has lost the connection to a server."""
        self._reporters.setdefault(server, []).append(worker)
        self._lose(server, REPORTED, f"is lost: {worker} lost the connection to it")
        self._kernel.call_at(self._kernel.now + nanoseconds(self._lease_s), self._doubt, server)

    def _doubt(self, server: str) -> None:
        """If a server that workers have lost is still connected here, they are lost, not it."""
        if self._run.early or not self._is_doubtful(server):
            return
        roles = self._roles
        del roles.lost[server]
        for worker in self._reporters.pop(server):
            roles.failed.discard(worker)
            roles.exited.discard(worker)
            how = ENDED if worker in roles.ended else SILENT
            self._lose(worker, how, f"lost the connection to {server}, which others still have")

    def _is_doubtful(self, name: str) -> bool:
        known = self._roles.lost.get(name)
        return known is not None and known[0] == REPORTED and name in self._run.listener.peers

    def _lose(self, name: str, how: int, reason: str) -> None:
        now = self._kernel.now
        if not self._roles.lose(name, how, reason, now):
            return
        if self._run.early:
            self._run.announced.add(name, ProcessFailed("RunError", reason))
        else:
            look = now + nanoseconds(_LAST_WORDS_S * (0.5 if how == ENDED else 1.0))
            self._kernel.call_at(look, self._decide, look + nanoseconds(_LONGEST_LAST_WORDS_S))

    def _decide(self, until: Time) -> None:
        """Have it decided what follows, once no message of the lost processes is unread."""
        roles, now = self._roles, self._kernel.now
        names = [name for name in roles.undecided if not self._is_doubtful(name)]
        if not names:
            return
        if now < until and self._may_still_be_heard(names):
            self._kernel.call_at(now + nanoseconds(_LOOK_AGAIN_S), self._decide, until)
            return
        losses = [
            Loss(name, roles.lost[name][1], roles.has_ended(name), name in roles.exited)
            for name in names
        ]
        self._survival.take_losses(losses, self._standstill())

    def _standstill(self) -> str:
        """Return that this process was stopped, if that was long enough to cause a loss.

        As the end of an error; empty if it was not.
        """
        stopped_s = self._run.clock.stood_still_s
        if stopped_s < self._lease_s:
            return ""
        return (
            f"; this process, which leads the run, had been stopped for {stopped_s:.0f} s, "
            f"and after {self._lease_s:g} s of silence it counts as lost for the others"
        )

    def _may_still_be_heard(self, lost: Collection[str]) -> bool:
        """True if messages are unread: this process may have been busy computing.

        All that a connection brought is there once its end is known. The launcher's report of an
        end says how the process ended, and may be later than that of its connection.
        """
        ended = {name for name in lost if self._roles.has_ended(name)}
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
