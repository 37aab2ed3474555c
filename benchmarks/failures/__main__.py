"""Measure what failures and checkpoints cost, and how soon a run goes on.

    python -m benchmarks.failures                       # all parts, half an hour
    python -m benchmarks.failures overhead resume --record
    python -m benchmarks.failures overhead --copied

goodput: useful gradients under kills of workers and of servers, against the same run without.
goodput-hpsgd: the same without servers.
failure-free: what membership and checkpoints together cost a run without failures.
overhead: the throughput that a checkpoint of a 100 MB model takes, and its size. With --copied:
    where servers send their parts to the coordinator, which writes them.
recovery: seconds from the kill of a worker or a server until the run has it back.
resume: seconds by which a resume takes longer than a start.
virtual: seconds for 500 random clusters with random failures in virtual time.

Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.failures.failure_free import failure_free
from benchmarks.failures.goodput import goodput
from benchmarks.failures.overhead import overhead
from benchmarks.failures.recovery import recovery, resuming
from benchmarks.failures.rows import Row, markdown
from benchmarks.failures.virtual import virtual
from benchmarks.papers.results import origin

from outpace.errors import OutpaceError
from outpace.record.folder import free_folder

RUNS = Path("runs/failures")
RESULTS = Path(__file__).parent / "results.json"
README = Path(__file__).parent.parent / "README.md"
BEGIN = "<!-- python -m benchmarks.failures --record -->"
END = "<!-- end of what benchmarks.failures recorded -->"
PARTS: Final = (
    "goodput",
    "goodput-hpsgd",
    "failure-free",
    "overhead",
    "recovery",
    "resume",
    "virtual",
)
TABLES: Final = (*PARTS, "overhead-copied")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a goal is missed or a run failed, 2 for a wrong option."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.failures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="seconds: does it work at all")
    parser.add_argument("--copied", action="store_true", help="of overhead: see above")
    parser.add_argument("--record", action="store_true", help="keep the results, in the README too")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.parts) - set(PARTS)):
        parser.error(f"there is no part {unknown[0]}; parts are {', '.join(PARTS)}")
    found: dict[str, Any] = {}
    try:
        for part in options.parts or PARTS:
            load = os.getloadavg()[0]
            quick, copied = options.quick, options.copied and part == "overhead"
            rows = [asdict(each) for each in _measured(part, quick=quick, copied=copied)]
            name = f"{part}-copied" if copied else part
            found[name] = {"rows": rows, "load": round(load, 1)}
            print("\n".join(_markdown(name, found[name])), flush=True)
            if options.record:
                _record({name: found[name]})
    except (OutpaceError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return int(not all(each["met"] for part in found.values() for each in part["rows"]))


def _measured(part: str, *, quick: bool, copied: bool) -> list[Row]:
    say = partial(print, file=sys.stderr, flush=True)
    if part == "virtual":
        return virtual(10 if quick else 500)
    with free_folder(RUNS, part) as out:
        if part == "goodput":
            return goodput(out, say, *((1, 4.0, ["worker"]) if quick else (3, 60.0)))
        if part == "goodput-hpsgd":
            lengths = (1, 8.0) if quick else (3, 60.0)
            return goodput(out, say, *lengths, ["worker"], "HPSGD")
        if part == "failure-free":
            return failure_free(out, say, *((1, 1.0) if quick else (8, 20.0)))
        if part == "overhead":
            lasting = (1.0, 4, 0.5, [0.0]) if quick else (100.0, 32, 5.0)
            return overhead(out, say, *lasting, copies=copied)
        if part == "recovery":
            return recovery(out, say, *((1.0, 1, ["server"], 0.2) if quick else (100.0, 5)))
        return resuming(out, say, *((1.0, 1) if quick else (100.0, 5)))


def _markdown(part: str, found: dict[str, Any]) -> list[str]:
    """Return the table of a part."""
    return [f"**{part}**; load {found['load']}", "", *markdown(found["rows"]), ""]


def _record(found: dict[str, Any]) -> None:
    """Keep the parts that were measured, beside those of earlier."""
    kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    kept |= {part: {**rows, **origin()} for part, rows in found.items()}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    README.write_text(with_tables(README.read_text("utf-8"), kept), "utf-8")


def with_tables(text: str, kept: dict[str, Any]) -> str:
    """Return the README with the tables of these results."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    tables = [""]
    for part in TABLES:
        if part in kept:
            said = f"{kept[part]['date']}, commit {kept[part]['commit']}."
            tables += [said, "", *_markdown(part, kept[part])]
    return "\n".join([before + BEGIN, *tables, END + after])


if __name__ == "__main__":
    sys.exit(main())
