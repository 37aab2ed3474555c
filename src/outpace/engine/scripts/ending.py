"""How a script ends because the run is over, or is ended early."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Final


class RunOver(SystemExit):
    """Exits a script that still trains when the run has ended."""


class EndedEarly(RunOver):
    """Exits a script because the run was ended early, by Ctrl-C or a signal."""

    def __init__(self) -> None:
        super().__init__("outpace: the run was ended early")


_DEFAULT: Final = signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler, None
_GRACE_S: Final = 5.0  # for a script to end by itself; the coordinator waits as long


class OwnHandler:
    """The handler of SIGTERM or Ctrl-C that the script of this process may have set.

    Call `call` when the run is ended early. The script may have got the same signal, as when a
    cluster sends it to all processes of a job: the handler is called once in all.
    """

    def __init__(self) -> None:
        self._come = -1  # a pipe with the numbers of the signals that have come
        self._until: float | None = None  # when the script's time to end by itself is over

    def watch(self) -> None:
        """Note which signals come, while a script runs in this process."""
        self._come, come = os.pipe()
        for end in (self._come, come):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(come, warn_on_full_buffer=False)
        # Signals to processes that the script forks are not this one's.
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))

    def close(self) -> None:
        """Do not call the handler any more: the script has ended."""
        self._come = -1

    def call(self) -> bool:
        """Call the handler, unless it has been called.

        Returns:
            True while the script still has time to end by itself.

        torchrun passes the signal on, too: scripts set a flag, leave their loop and save.
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


own_handler: Final = OwnHandler()  # there is one script in a process


@contextlib.contextmanager
def letting_it_end() -> Iterator[None]:
    """Continue after this block if the run is ended early and the script has a handler of its own.

    The script then reaches the place where it reads the flag that its handler has set. Its further
    steps train nothing.
    """
    try:
        yield
    except EndedEarly:
        if not own_handler.call():
            raise
