"""Ends the processes of scripts in the middle of a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import cast

from outpace.simulation.scripts.child_process import GRACE_S
from outpace.simulation.scripts.messages import Ended, receive
from outpace.simulation.scripts.process import ScriptProcess


def end_scripts(processes: Sequence[ScriptProcess]) -> None:
    """End scripts in the middle, as when a real run ends early: what they clean up is done.

    A script that has not ended two seconds later is left to `ScriptProcess.close`.
    """
    pipes = {process.pipe for process in processes if process.end_early()}
    deadline = time.monotonic() + GRACE_S
    while pipes and (left_s := deadline - time.monotonic()) > 0:
        for pipe in cast("list[Connection]", wait(pipes, left_s)):
            try:  # what they send is read, because a full pipe would stop them
                has_ended = isinstance(receive(pipe), Ended)
            except (EOFError, ConnectionError):
                has_ended = True
            if has_ended:
                pipes.remove(pipe)
