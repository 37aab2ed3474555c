"""Sends the messages of a worker's program, and notes when each was sent."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from outpace.blocks.block import StepSettings
from outpace.real.net.block_frames import head_of
from outpace.real.net.messages import WirePush
from outpace.real.net.transport import Caller
from outpace.real.node.served_worker.connections import Connections
from outpace.real.node.timing import Recorded, RequestTimes
from outpace.record.recorder import Recorder
from outpace.record.timing import PULL, PUSH
from outpace.sync.messages import (
    SCHEDULER,
    Done,
    Leave,
    Message,
    Pause,
    Pull,
    Push,
    Rejoin,
    Resume,
    size_bytes,
)

_FREE: Final = Leave | Rejoin  # do not count as messages
_ALONE: Final = Pull | Leave | Pause | Resume | Rejoin | Done


class Sending:
    """Sends messages of the program to the servers, and to the scheduler.

    Args:
        scheduler: sends to the process that has the scheduler.
        is_recorded: decides of which iterations the times are noted.

    Attributes:
        last_pushed: the last iteration that was pushed to any server; -1: none.
    """

    def __init__(
        self,
        scheduler: Caller,
        connections: Connections,
        recorder: Recorder,
        times: RequestTimes,
        is_recorded: Recorded,
    ) -> None:
        self._scheduler, self._servers = scheduler, connections.by_name
        self._recorder, self._times, self._is_recorded = recorder, times, is_recorded
        self.last_pushed = -1
        self._first_iteration = 0
        self._settings: Callable[[], StepSettings | None] = lambda: None

    def begin(self, settings: Callable[[], StepSettings | None], first_iteration: int) -> None:
        """Prepare for the first message of the program.

        Args:
            settings: see `Trainer.settings`.
            first_iteration: times of earlier ones are of the process that computed them.
        """
        self._settings, self._first_iteration = settings, first_iteration

    def send(self, to: str, *messages: Message) -> None:
        """See `Context.send`.

        Raises:
            WireError: if the receiver refused the connection.
        """
        caller = self._scheduler if to == SCHEDULER else self._servers[to].caller
        if isinstance(messages[0], Push):
            self.last_pushed = messages[0].iteration
        is_free = isinstance(messages[0], _FREE)
        self._recorder.totals.messages += 0 if is_free else len(messages)
        match messages:
            case (Push() as push, Pull() as pull) if push.iteration == pull.iteration:
                self._send_push(to, caller, push, pull.coin)
            case _:
                for message in messages:
                    if isinstance(message, Push):
                        self._send_push(to, caller, message, None)
                        continue
                    assert isinstance(message, _ALONE)
                    began = monotonic_ns()
                    caller.send(message)
                    if isinstance(message, Pull) and to != SCHEDULER:
                        self._note_pull(self._servers[to].number, message.iteration, began)

    def _note_pull(self, server: int, iteration: int, began: int) -> None:
        if self._is_recorded(iteration) and iteration >= self._first_iteration:
            self._times.sent(PULL, server, iteration, 0, began, pulls=True)

    def _send_push(self, to: str, caller: Caller, push: Push, coin: float | None) -> None:
        """Send a push, with the coin of its pull; None for a push without a pull."""
        size = size_bytes(push)
        self._recorder.totals.bytes_sent += size
        gradient = push.gradient
        head = None if gradient is None else head_of(gradient)
        message = WirePush(push.worker, push.iteration, push.version, head, coin)
        settings = self._settings()
        if settings is not None and gradient is not None:
            message.settings, message.unused = settings.groups, settings.unused
        message.skipped = push.skipped
        if to == SCHEDULER or not self._is_recorded(push.iteration):
            caller.send(message, gradient)
            return
        message.timed = True
        began, pulls = monotonic_ns(), coin is not None
        caller.send(message, gradient)
        server = self._servers[to].number
        self._times.sent(PUSH, server, push.iteration, size, began, pulls=pulls)
