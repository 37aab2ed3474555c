"""Handlers of signals for a block: one of its own, or none until something is complete."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def checkpoint_on_signal(save: Callable[[], None]) -> Iterator[None]:
    """In this block, call `save` on SIGUSR1: the run saves a checkpoint soon.

    Without effect outside of the main thread, and where the signal has another meaning already, or
    does not exist.
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
        # None: not set from Python, so it cannot be kept. What is ignored stays so.
        if signal.getsignal(number) not in (None, signal.SIG_IGN)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for missed in late:
        signal.raise_signal(missed)
