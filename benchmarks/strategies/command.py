"""What the commands of the suite share: the type of a count, and errors as exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Final

from outpace.errors import ConfigError, OutpaceError
from outpace.simulation.executors.processes import cores

KEPT: Final = "what was measured is kept; go on with --missing"


def described_parser(prog: str, text: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help has this text, with its lines as they are."""
    return argparse.ArgumentParser(
        prog=prog, description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def recording_parser(
    prog: str, text: str | None, cells: str, names: Sequence[str]
) -> argparse.ArgumentParser:
    """Return a parser with the options of a command that measures cells.

    Args:
        text: what the command does.
        cells: the help for those that are measured by default.
        names: of the strategies whose results can be forgotten.
    """
    parser = described_parser(prog, text)
    parser.add_argument("--record", action="store_true", help="measure, and keep the results")
    parser.add_argument("--missing", action="store_true", help="only what has no result")
    parser.add_argument("--cells", nargs="+", metavar="PATTERN", help=f"default: {cells}")
    parser.add_argument(
        "--again",
        nargs="+",
        choices=names,
        default=[],
        help="forget the results of these, so that --missing measures them anew",
    )
    parser.add_argument("--processes", type=positive, default=cores(), help="runs at a time")
    return parser


def recording_options(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Return the options. Ends the program if --again is given without --record."""
    options = parser.parse_args(arguments)
    if options.again and not options.record:
        parser.error("--again forgets results to measure them anew: it needs --record")
    return options


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
