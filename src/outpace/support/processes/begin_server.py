"""The first module of a fork server, which gets a separate session and ends with its starter."""

import os
import signal
from types import FrameType

from outpace.support.processes.forking import die_with_parent

_SERVER = os.getpid()


def _stay(number: int, frame: FrameType | None) -> None:
    """Ignore SIGTERM, which a cluster sends to all processes of a job.

    The command ends the run in order, so its processes must not end at once.
    """
    if os.getpid() != _SERVER:  # a new process that has not set its own handler yet
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


signal.signal(signal.SIGTERM, _stay)
die_with_parent()
os.setsid()  # so that the terminal's Ctrl-C does not reach it
