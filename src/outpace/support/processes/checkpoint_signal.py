"""SIGUSR1: a run saves a checkpoint soon."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def checkpoint_on_signal(save: Callable[[], None]) -> Iterator[None]:
    """In this block, call `save` on SIGUSR1, which would end the process otherwise.

    Without effect outside of the main thread, and where SIGUSR1 has another meaning already.
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
