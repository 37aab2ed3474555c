"""The coordinator's part in a run without servers: groups or pairs of workers, their snapshots."""

from __future__ import annotations

from collections.abc import Iterable

from outpace.errors import RunError
from outpace.kernel import Alarm, Kernel
from outpace.real.coordinator.checkpoints import Checkpoints
from outpace.real.coordinator.membership import Membership, Tell
from outpace.real.coordinator.pairs import Pairs
from outpace.real.coordinator.run_state import RunState
from outpace.real.coordinator.snapshots import PeerSnapshots
from outpace.real.net.peer_messages import EndMeeting, TakePart
from outpace.support.units import nanoseconds
from outpace.sync.membership.events import WorkerTrained
from outpace.sync.messages import Leave, WireMessage, worker_name
from outpace.sync.peers.meetings import Meetings


class HostedMeetings:
    """The meetings of a run: each ends when all workers that are in the run have entered it.

    Args:
        timeout_s: seconds in which all must enter after the first worker.
        tell: sends a message to a worker.
    """

    def __init__(
        self, kernel: Kernel, workers: Iterable[str], timeout_s: float, tell: Tell
    ) -> None:
        self._kernel, self._timeout_s, self._tell = kernel, timeout_s, tell
        self._meetings = Meetings(workers)
        self._alarm: Alarm | None = None  # set while a worker waits

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message of a worker; False if it is not about meetings alone."""
        if isinstance(message, Leave):
            self.lose(name)
        if not (isinstance(message, TakePart) and message.what == "meeting"):
            return False
        self._end(self._meetings.come(name, last=message.last))
        return True

    def lose(self, name: str) -> None:
        """Note that a worker has left or is lost."""
        self._end(self._meetings.leave(name))

    def _end(self, workers: list[str]) -> None:
        for name in workers:
            self._tell(name, EndMeeting(self._kernel.now))
        if self._alarm is not None and (workers or not self._meetings.absent):
            self._kernel.call_off(self._alarm)
            self._alarm = None
        if self._alarm is None and self._meetings.absent:
            due = self._kernel.now + nanoseconds(self._timeout_s)
            self._alarm = self._kernel.set_alarm(due, self._require_all)

    def _require_all(self) -> None:
        self._alarm = None
        raise RunError(
            f"{', '.join(self._meetings.absent)} did not come to the end of an iteration within "
            f"{self._timeout_s:g} s (sync.timeout_s) of the others, which wait there"
        )


def groups_of(run: RunState) -> Membership | Pairs:
    """Return the groups or pairs in which the workers of a run average."""
    strategy, kernel, send = run.experiment.peers, run.kernel, run.listener.send
    assert strategy is not None
    first = 0 if run.resume is None else run.resume.checkpoint.index.shards[0].version
    if strategy.exchanges:
        return Pairs(kernel, run.workers, run.experiment.seed, send, first)
    return Membership(kernel, run.workers, strategy.timeout_s, send, first)


class WithoutServers:
    """Has the same methods as `WithServers`.

    Args:
        checkpoints: the checkpoints of the run; None: none are taken.
    """

    def __init__(
        self, run: RunState, groups: Membership | Pairs, checkpoints: Checkpoints | None
    ) -> None:
        strategy, send = run.experiment.peers, run.listener.send
        assert strategy is not None
        self._run, self._workers = run, run.workers
        self.snapshots = PeerSnapshots(
            self._workers, not strategy.has_common, send, run.setting.evaluate
        )
        self._meetings = HostedMeetings(run.kernel, self._workers, strategy.timeout_s, send)
        self._groups, self._checkpoints = groups, checkpoints

    def start(self) -> None:
        """Do nothing, because the workers exchange their results among themselves."""

    def close(self) -> None:
        """Do nothing, because nothing is open."""

    def take(self, name: str, message: WireMessage) -> bool:
        """Handle a message about the training; False if it is about the run as a whole."""
        taken = self._meetings.take(name, message) or self._groups.take(name, message)
        if isinstance(message, Leave):
            self._run.members.take(WorkerTrained(self._run.numbers[name]), self._run.kernel.now)
            if self._checkpoints is not None:
                self._checkpoints.left(name)
        return taken

    def source(self, shard: int) -> tuple[str, int]:
        """Return which process sends snapshots as `shard`, and the slice that it owns."""
        return worker_name(shard), 0

    def lose(self, name: str) -> None:
        """Continue without a worker that is lost while the run ends."""
        self._groups.lose(name)
        self._meetings.lose(name)
        self.snapshots.lose(self._workers.index(name))
        if self._checkpoints is not None:
            self._checkpoints.left(name, lost=True)
