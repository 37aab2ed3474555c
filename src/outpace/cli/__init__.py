"""The command line: outpace simulate | compare | sweep | advise | run | serve | worker |
calibrate | explain | status | scale | report | export | runtimes | examples | doctor.

Exit codes: 0 for success; 1 if a run failed; 2 if the input was wrong and nothing was started;
130 after Ctrl-C, SIGTERM or SIGHUP; the folder is then complete and marked partial.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final

from outpace.cli import (  # noqa: F401  # they add their commands to the app
    advise,
    calibrate,
    comparisons,
    doctor,
    examples,
    explain,
    reports,
    runs,
    runtimes,
    status,
    sweeps,
)
from outpace.cli.base import app, say
from outpace.cli.processes import this_process_is_the_command
from outpace.support.notices import once, warnings_to

_WITH_SCRIPTS: Final = ("run", "simulate", "compare", "advise", "sweep")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Arguments after -- are passed on to a user's script.

    arguments: None: this process is the command, and they are its own.
    """
    signal.signal(signal.SIGTERM, _as_interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, _hung_up)
    if arguments is None:
        this_process_is_the_command()
    given = list(sys.argv[1:] if arguments is None else arguments)
    cut = given.index("--") if "--" in given else len(given)
    if given[:1] and given[0] not in _WITH_SCRIPTS:
        given = given[:cut] + given[cut + 1 :]  # -- means nothing special to other commands
        cut = len(given)
    # Once for all variants of a comparison, which have a cluster in common.
    with warnings_to(once(lambda text: say("warning", [text]))):
        app(args=given[:cut], prog_name="outpace", obj=given[cut + 1 :])


def _hung_up(number: int, frame: FrameType | None) -> None:
    """Interrupt the command; drop its further output if its terminal does not exist any more."""
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(stream).st_mode):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream)
                os.close(nowhere)
    _as_interrupt(number, frame)


def _as_interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
