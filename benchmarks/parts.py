"""The command line of a benchmark in parts, each with a table of rows in benchmarks/README.md."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.recorded import origin, write_json
from benchmarks.rows import Row, markdown, table

from benchmarks import recorded
from outpace.errors import OutpaceError

Cells = dict[str, Any]  # by column


@dataclass(frozen=True)
class Benchmark:
    """A benchmark in parts.

    Attributes:
        name: as in `python -m benchmarks.NAME`; its folder has the file results.json.
        measure: returns the rows of a part, or cells by column with an entry `met`; it is called
            with the part, a function that prints a line, and whether seconds must do.
        missing: returns text about what this machine lacks for the benchmark; empty: nothing.
        about: returns the versions and the machine that the results depend on, for `--json`.
    """

    name: str
    description: str
    parts: Sequence[str]
    measure: Callable[[str, Callable[[str], object], bool], Sequence[Row | Cells]]
    missing: Callable[[], str] = lambda: ""
    about: Callable[[], dict[str, str]] = dict

    @property
    def results(self) -> Path:
        return Path(__file__).parent / self.name / "results.json"

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Return 0, or 1 if a goal is missed or a run failed.

        2 for a wrong option, or if the machine lacks what is needed.
        """
        parser = argparse.ArgumentParser(
            prog=f"benchmarks.{self.name}",
            description=self.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("parts", nargs="*", help=f"{', '.join(self.parts)}; default: all")
        parser.add_argument("--quick", action="store_true", help="seconds: does it work at all")
        parser.add_argument(
            "--record", action="store_true", help="keep the results, in the README too"
        )
        parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to a file")
        options = parser.parse_args(arguments)
        if unknown := sorted(set(options.parts) - set(self.parts)):
            parser.error(f"there is no part {unknown[0]}; parts are {', '.join(self.parts)}")
        say = partial(print, file=sys.stderr, flush=True)
        if missing := self.missing():
            say(f"benchmarks.{self.name}: {missing}")
            return 2
        found: dict[str, Any] = {}
        try:
            for part in options.parts or self.parts:
                load = os.getloadavg()[0]
                measured = self.measure(part, say, options.quick)
                rows = [asdict(each) if isinstance(each, Row) else each for each in measured]
                found[part] = {"rows": rows, "load": round(load, 1)}
                print("\n".join(_markdown(part, found[part])), flush=True)
                if options.record:
                    self._record({part: found[part]})
                if options.json is not None:  # after each part: a later one may fail
                    write_json(options.json, {**_origin(), **self.about(), "parts": found})
        except (OutpaceError, OSError, RuntimeError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        return int(not all(each["met"] for part in found.values() for each in part["rows"]))

    def _record(self, found: dict[str, Any]) -> None:
        """Save the measured parts together with the parts that were measured earlier."""
        kept = json.loads(self.results.read_text("utf-8")) if self.results.exists() else {}
        kept |= {part: {**rows, **origin()} for part, rows in found.items()}
        write_json(self.results, kept)
        recorded.write_tables(self.command, self.tables(kept))

    @property
    def command(self) -> str:
        return f"python -m benchmarks.{self.name} --record"

    def tables(self, kept: dict[str, Any]) -> str:
        """Return the tables of these results."""
        tables: list[str] = []
        for part in self.parts:
            if part in kept:
                said = f"{kept[part]['date']}, commit {kept[part]['commit']}."
                tables += [said, "", *_markdown(part, kept[part])]
        return "\n".join(tables)


def _origin() -> dict[str, str]:
    """Return the date and the commit of this code; empty if it is not a checkout."""
    try:
        return origin()
    except (OSError, SystemExit):
        return {}


def _markdown(part: str, found: dict[str, Any]) -> list[str]:
    """Return the table of a part."""
    rows = found["rows"]
    lines = markdown(rows) if "median" in rows[0] else _cells(rows)
    return [f"**{part}**; load {found['load']}", "", *lines, ""]


def _cells(rows: Sequence[Cells]) -> list[str]:
    """Return the table of rows that are cells by column."""
    columns = [column for column in rows[0] if column != "met"]
    cells = [
        [*(str(row[column]) for column in columns), "" if row["met"] else "**missed**"]
        for row in rows
    ]
    return table([*columns, ""], cells)
