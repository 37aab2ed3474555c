"""The output of `simulate`, `compare`, `run` and `serve`: a table, JSON, or nothing."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from outpace.cli.base import echo, progress_bars, say

_STDOUT, _STDERR = 1, 2  # file descriptors
_WARNING: Final = "warning: "


class Output:
    """The output of a command.

    Args:
        quiet: print warnings and errors only.
        as_json: print the result as JSON; all other output goes to standard error.
    """

    def __init__(self, quiet: bool, as_json: bool) -> None:
        self.quiet, self._as_json = quiet, as_json

    @contextlib.contextmanager
    def of_run(self) -> Iterator[None]:
        """Run the block; with JSON, all output goes to standard error, also of its processes."""
        if not self._as_json:
            yield
            return
        sys.stdout.flush()
        kept = os.dup(_STDOUT)
        try:
            os.dup2(_STDERR, _STDOUT)
            with contextlib.redirect_stdout(sys.stderr):
                yield
        finally:
            os.dup2(kept, _STDOUT)
            os.close(kept)

    @contextlib.contextmanager
    def continuable(self, folder: Path) -> Iterator[None]:
        """Run the block; if it is interrupted, say how to continue from the files in the folder."""
        try:
            yield
        except KeyboardInterrupt:
            if any(folder.glob("*")):
                self.where(folder)
                out = shlex.quote(str(folder))
                say("note", [f"to continue, repeat the command with --out {out} --resume"])
            raise

    @contextlib.contextmanager
    def with_bars(
        self, start_fork_server: Callable[[], None]
    ) -> Iterator[Callable[[str], Callable[[float], None]]]:
        """Run the block like `of_run`, with progress bars; yields the function that adds a bar.

        The fork server is started before the bars, because the bars have a thread, and a process
        with a second thread cannot be copied.
        """
        with self.of_run():
            start_fork_server()
            with progress_bars(not self.quiet) as bar:
                yield bar

    def log(self, text: str) -> None:
        """Print a line about the run to standard error."""
        if not self.quiet or text.startswith(_WARNING):
            echo(text, err=True)

    def note(self, text: str) -> None:
        if not self.quiet:
            say("note", [text])

    def result(self, data: Any, print_table: Callable[[], None] = lambda: None) -> None:
        """Print the result, as JSON or by `print_table`."""
        if self._as_json:
            echo(json.dumps(data, indent=2, allow_nan=False))
        elif not self.quiet:
            print_table()

    def where(self, folder: Path) -> None:
        """Print where the report is, or the folder if the report could not be written."""
        from outpace.record.folder import REPORT

        if not self.quiet:
            report = folder / REPORT
            where = f"report: {report}" if report.exists() else f"folder: {folder}"
            echo(where, err=self._as_json)
