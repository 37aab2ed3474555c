"""What the commands of the suite share: the type of a count, and errors as exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Final

from outpace.errors import ConfigError, OutpaceError

KEPT: Final = "what was measured is kept; continue with --missing"


def positive(text: str) -> int:
    """Return a whole number from 1 on. Raises argparse.ArgumentTypeError for another one."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def exit_code(work: Callable[[], int], interrupted: str = KEPT) -> int:
    """Do the work, and return its exit code.

    It is 1 if a run failed, 2 if an option or a file is wrong, 130 after Ctrl-C. interrupted: what
    is said after Ctrl-C.
    """
    try:
        return work()
    except OutpaceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        print(f"interrupted: {interrupted}", file=sys.stderr)
        return 130
