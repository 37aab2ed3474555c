"""Ends a script because the run is over, or because the run is ended early."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Final


class RunOver(SystemExit):
    """Raised to exit a script that still trains when the run has ended."""


class EndedEarly(RunOver):
    """Raised to exit a script because Ctrl-C or a signal ends the run early."""

    def __init__(self) -> None:
        super().__init__("outpace: the run was ended early")


_DEFAULT: Final = signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None
_GRACE_S: Final = 5.0  # seconds for a script to end by itself; the coordinator waits equally long


class OwnHandler:
    """The handler of SIGTERM or Ctrl-C that the script of this process may have set.

    Call `call` when the run is ended early. The script may have received the same signal, because a
    cluster sends it to all processes of a job: the handler is called only once.
    """

    def __init__(self) -> None:
        self._come = -1  # a pipe with the numbers of the received signals
        self._until: float | None = None  # time until which the script may end by itself

    def watch(self) -> None:
        """Note which signals arrive while a script runs in this process."""
        self._come, come = os.pipe()
        for end in (self._come, come):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(come, warn_on_full_buffer=False)
        # Signals to processes that the script forks are not for this process.
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))

    def close(self) -> None:
        """Do not call the handler any more, because the script has ended."""
        self._come = -1

    def call(self) -> bool:
        """Call the handler, unless it has been called.

        Returns:
            True while the script still has time to end by itself.

        torchrun passes on the signal as well. Scripts then set a flag, leave their loop and save.
        """
        if threading.current_thread() is not threading.main_thread():
            return False
        if self._until is None and self._come != -1:
            for number in (signal.SIGTERM, signal.SIGINT):
                handler = signal.getsignal(number)
                if callable(handler) and handler not in _DEFAULT:
                    self._until = time.monotonic() + _GRACE_S
                    # Not SIG_IGN, which programs that the script starts would inherit.
                    signal.signal(number, lambda *_: None)
                    if number not in self._signals():
                        handler(number, None)
                    break
        return self._until is not None and time.monotonic() < self._until

    def _signals(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self._come, 4096)
        return b""


own_handler: Final = OwnHandler()  # a process has only one script


@contextlib.contextmanager
def letting_it_end() -> Iterator[None]:
    """Continue after this block if the run is ended early and the script has its own handler.

    The script then reaches the place where it reads the flag that its handler has set. The further
    steps of the script have no effect on the training.
    """
    try:
        yield
    except EndedEarly:
        if not own_handler.call():
            raise
