"""Delays Ctrl-C, SIGTERM and SIGHUP where an interruption would leave something half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C, SIGTERM and SIGHUP until the block is done, in the main thread.

    If the block raises, they are left out. Blocking the signals in this thread is not enough:
    another thread may take them, and Python still runs the handler here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    late: list[int] = []
    before = {
        number: signal.signal(number, lambda n, _: late.append(n))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not None  # None: not set from Python, so it cannot be kept
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for missed in late:
        signal.raise_signal(missed)
