"""A script's end of its pipe to the simulation."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import NoReturn

import torch

from outpace.engine.scripts.ending import EndedEarly, RunOver, own_handler
from outpace.simulation.scripts.messages import FromScript, Over, Stepped, ToScript, receive, send


class ScriptPipe:
    """The pipe of a script's process. The process ends if the simulation has ended.

    Attributes:
        on_over: called when the run is over while the script waits; it exits the script.
        is_over: True once the script exits because the run is over; after that the simulation sends
            no answers.
        is_ended_early: True once the simulation has ended the run early; after that it reads no
            messages.
        steps: number of steps that the script has taken.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._sending = threading.Lock()  # any thread of the script may log
        self.on_over: Callable[[Over], NoReturn] = _exit
        self.is_over = self.is_ended_early = False
        self.steps = 0

    def send_bytes(self, data: bytes) -> None:
        """See `Connection`."""
        with self._sending:
            self._pipe.send_bytes(data)

    def recv_bytes(self) -> bytes:
        """See `Connection`."""
        return self._pipe.recv_bytes()

    def send(self, message: FromScript) -> None:
        """Send a message. Raises RunOver if the run was ended early."""
        if self.is_ended_early:
            raise EndedEarly
        self.steps += isinstance(message, Stepped)
        try:
            with torch.device("cpu"):  # the script may have set another default device
                send(self, message)
        except ConnectionError:
            os._exit(1)

    def receive(self) -> ToScript:
        """Return the next message. Raises RunOver if the run is over."""
        try:
            with torch.device("cpu"):
                message: ToScript = receive(self)
        except (EOFError, ConnectionError):
            os._exit(1)
        if isinstance(message, Over):
            self.exit(message)
        return message

    def exit(self, over: Over) -> NoReturn:
        """Exit the script because the run is over."""
        self.is_over, self.is_ended_early = True, not over.reason
        if self.is_ended_early:
            own_handler.call()
        self.on_over(over)


def _exit(over: Over) -> NoReturn:
    raise RunOver(over.reason) if over.reason else EndedEarly
