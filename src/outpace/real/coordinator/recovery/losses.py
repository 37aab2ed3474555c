"""Handles processes of the run that die or can no longer be reached.

A loss is known in three ways: the launcher says that the process has ended, its connection to the
coordinator is gone, or, for a server, a worker has lost the connection to it. The run does not end
at once: a message that says what went wrong may still be on its way, and a more direct report may
follow, which then names the cause. A server that this process still hears a lease after a worker
has lost it is there: then it is the worker that is lost. Once a run has started, `on_worker_loss`
says what happens when a worker is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from outpace import errors
from outpace.engine.scripts.misuse import with_name
from outpace.errors import ConfigError, DivergenceError, OutpaceError, RunError
from outpace.kernel import Kernel
from outpace.real.net.report_messages import ProcessFailed
from outpace.real.net.transport import Listener
from outpace.support.processes.forking import has_exited
from outpace.support.units import Time, nanoseconds
from outpace.sync.messages import WireMessage

_LAST_WORDS_S: Final = 0.5  # for messages that a process sent before it died
_LONGEST_LAST_WORDS_S: Final = 10.0  # while messages are unread
_LOOK_AGAIN_S: Final = 0.02
_BEFORE: Final = " before it was done"
_ENDED, _SILENT, _REPORTED = range(3)  # how a loss is known, the most direct way first


class GroupLost(RunError):
    """A run has lost processes without which the others cannot go on. names: of the processes.

    They are servers, or workers without servers that are not to be left out. All processes can
    begin again from a checkpoint.
    """

    def __init__(self, text: str, names: Collection[str]) -> None:
        super().__init__(text)
        self.names = names


class Losses:
    """The processes that are lost, have failed, or have finished.

    go_on_without: called with lost processes and their errors; returns True if the run goes on.
    announce: wakes what waits for a process, with a message in its name.
    """

    def __init__(
        self,
        kernel: Kernel,
        listener: Listener,
        servers: Collection[str],
        lease_s: float,
        go_on_without: Callable[[Mapping[str, RunError]], bool],
        announce: Callable[[str, WireMessage], None],
    ) -> None:
        self.finished: set[str] = set()
        self.early = False  # the run ends early: losses no longer matter
        # Seconds for which this process was stopped, by a signal for example.
        self.stood_still_s: Callable[[], float] = lambda: 0.0
        # True if the launcher is about to report the end of this process.
        self.is_ending: Callable[[str], bool] = lambda name: False
        # True if all processes begin again after the loss of this one.
        self.begin_again_after: Callable[[str], bool] = lambda name: name in self._servers
        # Why a lost process with which the run ends was not started again, as the end of a line.
        self.why_not_again: Callable[[str], str] = lambda name: ""
        # Called when a process has ended: True if another one takes its place, so it is no loss.
        self.is_replaced: Callable[[str], bool] = lambda name: False
        # Called when a process has been killed that had finished: its last messages to others than
        # this process may be lost.
        self.when_killed_at_its_end: Callable[[str], None] = lambda name: None
        self._kernel, self._listener = kernel, listener
        self._servers, self._lease_s = servers, lease_s
        self._go_on_without, self._announce = go_on_without, announce
        self._failed: set[str] = set()  # processes that have reported an error
        self._without: set[str] = set()  # lost processes that the run goes on without
        self._since: dict[str, Time] = {}  # of the kernel: when a loss was known first
        self._lost: dict[str, tuple[int, RunError]] = {}  # name: how it is known, the error
        self._ended: set[str] = set()  # processes whose end the launcher has reported
        self._exited: set[str] = set()  # those of them that were not killed
        self._reporters: dict[str, list[str]] = {}  # workers that lost a server, by server

    def awaited(self, names: list[str]) -> list[str]:
        """Return the names of processes that have not finished and may still do so."""
        gone = self._failed.union(self._lost) if self.early else self._without
        return [name for name in names if name not in self.finished and name not in gone]

    def process_finished(self, name: str) -> None:
        self.finished.add(name)
        self._lost.pop(name, None)

    def process_failed(self, name: str, failed: ProcessFailed) -> None:
        """Raise the error that a process reports, unless it is the loss of a server."""
        if name in self._without:
            return
        self._failed.add(name)
        if failed.lost in self._servers:
            self._report(name, failed.lost)
        elif self.early:
            self._announce(name, failed)
        else:
            raise _error(name, failed)

    def connection_lost(self, name: str) -> None:
        reason = f"is lost: its connection closed, or was silent for {self._lease_s:g} s"
        self._lose(name, _SILENT, reason)

    def process_ended(self, name: str, how: str) -> None:
        """The launcher says that this process has ended."""
        if self.is_replaced(name):
            return
        if name in self.finished and not has_exited(how):
            self.when_killed_at_its_end(name)
            return
        self._ended.add(name)
        if has_exited(how):
            self._exited.add(name)
        self._lose(name, _ENDED, how + _BEFORE)

    def has_ended(self, name: str) -> bool:
        """True if the launcher has said that this lost process has ended."""
        return name in self._lost and self._lost[name][0] == _ENDED

    def has_exited(self, name: str) -> bool:
        """True if this lost process has ended itself, with an exit code."""
        return name in self._exited

    def known_for(self, *names: str) -> Time:
        """Return for how long (ns) the first loss of these processes has been known."""
        since = [self._since[name] for name in names if name in self._since]
        return self._kernel.now - min(since) if since else 0

    def comes_back(self, name: str) -> None:
        """Another process takes the place of a lost one."""
        self._lost.pop(name, None)
        for known in (self._failed, self._ended, self._exited):
            known.discard(name)

    def goes_without(self, name: str) -> None:
        """The run goes on without a process that was to come back."""
        self._without.add(name)

    @property
    def lost(self) -> set[str]:
        """Names of the processes that are lost, and that the run does not go on without yet."""
        return self._lost.keys() - self._settled

    @property
    def _settled(self) -> set[str]:
        return self.finished | self._failed | self._without

    def _report(self, worker: str, server: str) -> None:
        """A worker ends because it has lost the connection to a server."""
        self._reporters.setdefault(server, []).append(worker)
        self._lose(server, _REPORTED, f"is lost: {worker} lost the connection to it")
        self._kernel.call_at(self._kernel.now + nanoseconds(self._lease_s), self._doubt, server)

    def _doubt(self, server: str) -> None:
        """If a server that workers have lost is still connected here, they are lost, not it."""
        if self.early or not self._is_doubtful(server):
            return
        del self._lost[server]
        for worker in self._reporters.pop(server):
            self._failed.discard(worker)
            self._exited.discard(worker)
            how = _ENDED if worker in self._ended else _SILENT
            self._lose(worker, how, f"lost the connection to {server}, which others still have")

    def _is_doubtful(self, name: str) -> bool:
        known = self._lost.get(name)
        return known is not None and known[0] == _REPORTED and name in self._listener.peers

    def _lose(self, name: str, how: int, reason: str) -> None:
        known = self._lost.get(name)
        if name in self._settled or (known and known[0] <= how):
            return
        if known is None:
            self._since[name] = self._kernel.now
        self._lost[name] = how, RunError(f"{name} {reason}")
        if self.early:
            self._announce(name, ProcessFailed("RunError", reason))
        else:
            look = self._kernel.now + nanoseconds(_LAST_WORDS_S * (0.5 if how == _ENDED else 1.0))
            self._kernel.call_at(look, self._decide, look + nanoseconds(_LONGEST_LAST_WORDS_S))

    def _decide(self, until: Time) -> None:
        """Go on without the lost processes, or end the run, once no message of theirs is unread."""
        lost = {
            name: known
            for name, known in self._lost.items()
            if name not in self._settled and not self._is_doubtful(name)
        }
        if not lost:
            return
        now = self._kernel.now
        if now < until and self._may_still_be_heard(lost):
            self._kernel.call_at(now + nanoseconds(_LOOK_AGAIN_S), self._decide, until)
        elif self._go_on_without({name: error for name, (_, error) in lost.items()}):
            self._without.update(name for name in lost if name in self._lost)
        else:
            needed = [name for name in lost if self.begin_again_after(name)]
            first = min(needed or lost, key=lambda name: lost[name][0])
            error = self._with_standstill(lost[first][1])
            if needed:
                raise GroupLost(str(error), needed)
            raise RunError(f"{error}{self.why_not_again(first)}")

    def _with_standstill(self, error: RunError) -> RunError:
        """Add to the error that this process was stopped, if that was long enough to cause it."""
        stopped_s = self.stood_still_s()
        if stopped_s < self._lease_s:
            return error
        return RunError(
            f"{error}; this process, which leads the run, had been stopped for {stopped_s:.0f} s, "
            f"and after {self._lease_s:g} s of silence it counts as lost for the others"
        )

    def _may_still_be_heard(self, lost: Mapping[str, tuple[int, RunError]]) -> bool:
        """True if messages are unread: this process may have been busy computing.

        All that a connection brought is there once its end is known. The launcher's report of an
        end says how the process ended, and may be later than that of its connection.
        """
        ended = {name for name, (how, _) in lost.items() if how == _ENDED}
        return (
            self._listener.unread
            or not ended.isdisjoint(self._listener.peers)
            or any(self.is_ending(name) for name in lost if name not in ended)
        )


def _error(name: str, failed: ProcessFailed) -> OutpaceError:
    kinds = {"ConfigError": ConfigError, "DivergenceError": DivergenceError}
    kind = kinds.get(failed.kind, RunError)
    is_ours = failed.kind in vars(errors)
    text = failed.text if is_ours else f"{failed.kind}: {failed.text}"
    return kind(with_name(name, text))
