"""The command `outpace`, also `python -m outpace`; ends without a traceback on Ctrl-C."""

import gc
import os
import signal
import sys
from types import FrameType

from outpace.support.garbage import collect_rarely


def main() -> None:
    """Run the command line."""
    collect_rarely()
    try:
        # the signal is not ignored
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
        from outpace.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        gc.freeze()  # otherwise Python searches all objects at its end, which takes 0.5 s


def _interrupt(_: int, frame: FrameType | None) -> None:
    # During their import, libraries lose exceptions or replace them. Nothing has started yet, so
    # the process may simply end.
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "<module>" and name.startswith("outpace."):
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
