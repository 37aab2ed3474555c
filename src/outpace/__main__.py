"""The command `outpace`, and `python -m outpace`: quiet on Ctrl-C from the start."""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line."""
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
            signal.signal(signal.SIGINT, _interrupt)
        from outpace.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


def _interrupt(_: int, frame: FrameType | None) -> None:
    # Libraries lose exceptions on their import, or turn them into others. Nothing has
    # started there: the process may simply end.
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "<module>" and name.startswith("outpace."):
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
