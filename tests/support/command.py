"""Runs the command line inside the test process."""

from __future__ import annotations

import signal

from outpace.cli import main


def outpace(*arguments: str) -> int:
    """Run a command and return its exit code; signal handling does not change."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def refused(capsys, *arguments: str) -> str:
    """Return the message of a call that must end with 2, without a traceback."""
    assert outpace(*arguments) == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    return message
