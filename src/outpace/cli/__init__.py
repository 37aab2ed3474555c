"""The command line: outpace simulate | compare | sweep | advise | run | serve | worker |
calibrate | explain | status | report | export | runtimes | examples.

Exit codes: 0 for success; 1 if a run failed; 2 if the input was wrong and nothing was started;
130 after Ctrl-C; the folder is then complete and marked partial.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from types import FrameType

from outpace.cli import (
    advise,
    calibrate,
    comparisons,
    examples,
    explain,
    reports,
    runs,
    runtimes,
    status,
    sweeps,
)
from outpace.cli.base import app, say
from outpace.support.notices import warnings_to

__all__ = [
    "advise",
    "app",
    "calibrate",
    "comparisons",
    "examples",
    "explain",
    "main",
    "reports",
    "runs",
    "runtimes",
    "status",
    "sweeps",
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command. Arguments after -- are passed on to a user's script."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    given = list(sys.argv[1:] if arguments is None else arguments)
    cut = given.index("--") if "--" in given else len(given)
    if given[cut + 1 :] and given[:1] not in (
        ["run"],
        ["simulate"],
        ["compare"],
        ["advise"],
        ["sweep"],
    ):
        given = given[:cut] + given[cut + 1 :]  # -- means nothing special to other commands
        cut = len(given)
    said = set[str]()  # by variants of a comparison, which have a cluster in common

    def warn(text: str) -> None:
        if text not in said:
            say("warning", [text])
        said.add(text)

    with warnings_to(warn):
        app(args=given[:cut], prog_name="outpace", obj=given[cut + 1 :])


def _as_interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
