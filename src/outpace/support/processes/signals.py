"""Sets signal handlers for a block, or delays signals until a block is done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def checkpoint_on_signal(save: Callable[[], None]) -> Iterator[None]:
    """Call `save` on SIGUSR1 in this block: the run then saves a checkpoint soon.

    This has no effect outside of the main thread, if the signal has a handler already, or if the
    signal does not exist.
    """
    number = getattr(signal, "SIGUSR1", None)
    is_main = threading.current_thread() is threading.main_thread()
    if number is None or not is_main or signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return
    signal.signal(number, lambda *_: save())
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """In the main thread, delay Ctrl-C, SIGTERM and SIGHUP until the block is done.

    If the block raises an error, the delayed signals are dropped. To block the signals in this
    thread is not enough: another thread may receive them, and Python still runs the handler here.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    late: list[int] = []
    before = {
        number: signal.signal(number, lambda n, _: late.append(n))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        # None: the handler was not set from Python, so it cannot be restored. Ignored signals stay
        # ignored.
        if signal.getsignal(number) not in (None, signal.SIG_IGN)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for missed in late:
        signal.raise_signal(missed)
