"""Ctrl-Z: the processes of a run stop with their launcher, and go on with it.

The processes are in a session of their own, so that the terminal does not reach them. If the
launcher alone were stopped, they would count it as lost after a lease of silence.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from outpace.real.process.launcher import Launcher
from outpace.support.processes.signals import calling_on


def suspended_together(
    launcher: Launcher, say: Callable[[str], None]
) -> AbstractContextManager[None]:
    """Within this context, stop the processes before this one on Ctrl-Z; continue them after it.

    Has no effect outside of the main thread, and where Ctrl-Z has another meaning already.

    Args:
        say: called with a line when this process has been continued.
    """

    def stop() -> None:
        launcher.suspend()
        since = time.monotonic()
        try:
            os.kill(os.getpid(), signal.SIGSTOP)  # returns when this process is continued
        finally:
            launcher.resume()
        stopped_s = time.monotonic() - since
        say(f"the run was suspended for {stopped_s:.0f} s, with all processes of this machine")

    return calling_on("SIGTSTP", stop)
