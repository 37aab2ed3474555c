"""Measure how well and how fast slow workers are found, and how true promised gains are.

    python -m benchmarks.explain               # all parts
    python -m benchmarks.explain names speed --record

names: generated clusters of 2 to 64 workers, with and without workers 1.2 times as slow.
servers: generated clusters in virtual time, with and without a slow server or link.
speed: the cost of looking for slow workers in a real run, in its coordinator's process.
repairs: real runs with a slow worker, and reruns without, against the promised time.

Exit code 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.explain.clusters import LAWS, WITHIN, Named, bursts, named
from benchmarks.explain.repairs import GOAL, repairs
from benchmarks.explain.servers import Servers, servers
from benchmarks.explain.speed import per_iteration_s

from benchmarks import recorded
from outpace.errors import OutpaceError
from outpace.record.folder import free_folder

RUNS = Path("runs/explain")
RESULTS = Path(__file__).parent / "results.json"
COMMAND = "python -m benchmarks.explain --record"
PARTS: Final = ("names", "servers", "speed", "repairs")
CVS: Final = (0.02, 0.05, 0.1)
WIDE: Final = (0.2, 0.3)  # for these no goal is set
LEAST: Final = 0.99  # precision and recall
ITERATION_S: Final = 0.05  # a short iteration, whose 0.5 % is the goal
SHARE: Final = 0.005


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 if a goal is missed or a run failed, 2 for a wrong option."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.explain",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", help="names, servers, speed, repairs; default: all")
    parser.add_argument("--seeds", type=int, default=100, help="clusters of each kind")
    parser.add_argument("--quick", action="store_true", help="seconds: does it work at all")
    parser.add_argument("--record", action="store_true", help="keep the results, in the README too")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.parts) - set(PARTS)):
        parser.error(f"there is no part {unknown[0]}; parts are {', '.join(PARTS)}")
    found: dict[str, Any] = {}
    try:
        for part in options.parts or PARTS:
            load = os.getloadavg()[0]
            rows = _measured(part, options.seeds, quick=options.quick)
            found[part] = {"rows": rows, "load": round(load, 1)}
            print("\n".join(_markdown(part, found[part])), flush=True)
    except (OutpaceError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.record:
        _record(found)
    return int(not all(row["met"] for part in found.values() for row in part["rows"]))


def _measured(part: str, seeds: int, *, quick: bool) -> list[dict[str, Any]]:
    """Return rows of plain data; `met` is True where there is no goal."""
    if part == "speed":
        rows = []
        for workers in (4, 16, 64)[: 1 if quick else None]:
            times = per_iteration_s(workers, 200 if quick else 2000, 1 if quick else 5)
            median = statistics.median(times)
            row = {"workers": workers, "median_s": median, "low_s": min(times)}
            rows.append({**row, "high_s": max(times), "met": median <= SHARE * ITERATION_S})
        return rows
    if part == "servers":
        counts = servers(1 if quick else max(1, seeds // 10), quick=quick)
        return [{**vars(one), "met": _named_rightly(one)} for one in counts]
    if part == "repairs":
        say = partial(print, file=sys.stderr, flush=True)
        with free_folder(RUNS, "repairs") as out:
            each = repairs(out, say, *((25, 0.04, 1) if quick else ()))
        return [{**vars(one), "error": one.error, "met": one.met} for one in each]
    return _names(3 if quick else seeds, quick=quick)


def _named_rightly(one: Servers) -> bool:
    if one.expected == 0:
        return one.wrong <= max(1, 0.01 * one.clusters)
    return min(one.precision, one.recall) >= LEAST


def _names(seeds: int, *, quick: bool) -> list[dict[str, Any]]:
    rows, whole = [], Named("all", 0.0)
    for law in LAWS:
        for cv in CVS[: 1 if quick else None]:
            each = named(law, cv, seeds)
            whole.add(each)
            rows.append(_row(each, f"{law}, {100 * cv:.0f} %"))
    total = _row(whole, "all of these")
    total["met"] = min(whole.precision, whole.recall) >= LEAST
    total["met"] &= whole.false <= max(1, 0.02 * whole.clusters)  # 1 %, of workers that are equal
    rows.append(total)
    for cv in WIDE[: 0 if quick else None]:
        wide = named("log-normal", cv, max(1, seeds // 4), 150)
        rows.append(_row(wide, f"log-normal, {100 * cv:.0f} %, in 150 iterations"))
    periods = bursts(max(1, seeds // 4))
    rows.append(
        {
            "what": "two bursts of 30 iterations, 5 %",
            "recall": periods.right / max(periods.right + periods.missed, 1),
            "precision": periods.right / max(periods.right + periods.wrong, 1),
            "median": None,
            "late": None,
            "off": statistics.mean(periods.off) if periods.off else None,
            "false": "",
            "met": periods.right >= LEAST * (periods.right + max(periods.missed, periods.wrong)),
        }
    )
    return rows


def _row(each: Named, what: str) -> dict[str, Any]:
    after = sorted(each.after or [])
    return {
        "what": what,
        "recall": each.recall,
        "precision": each.precision,
        "median": after[len(after) // 2] if after else None,
        "late": after[int(0.99 * (len(after) - 1))] if after else None,
        "off": None,
        "false": f"{each.false} of {each.clusters}",
        "met": True,
    }


def _markdown(part: str, found: dict[str, Any]) -> list[str]:
    """Return the table of a part."""
    rows, load = found["rows"], found["load"]
    if part == "speed":
        lines = [
            f"**CPU time per iteration of all workers**; load {load}",
            "",
            f"| workers | median | extremes | of {1e3 * ITERATION_S:.0f} ms | goal |",
            "|---|---|---|---|---|",
        ]
        for row in rows:
            low, median, high = (1e6 * row[f"{name}_s"] for name in ("low", "median", "high"))
            share = f"{100 * row['median_s'] / ITERATION_S:.2f} %"
            goal = f"{100 * SHARE:.1f} %{'' if row['met'] else ', **missed**'}"
            span = f"{low:.0f} to {high:.0f} µs"
            lines.append(f"| {row['workers']} | {median:.0f} µs | {span} | {share} | {goal} |")
    elif part == "servers":
        lines = [
            "**Slow servers and links of generated clusters**",
            "",
            "| slow | clusters | named | not named | others named | |",
            "|---|---|---|---|---|---|",
        ]
        for row in rows:
            cells = [row[name] for name in ("what", "clusters", "right", "missed", "wrong")]
            cells.append("" if row["met"] else "**missed**")
            lines.append(f"| {' | '.join(map(str, cells))} |")
    elif part == "repairs":
        lines = [
            f"**Promised and real time without the slow worker**; load {load}",
            "",
            "| run | named | took | promised | rerun | error | goal |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            goal = f"{100 * GOAL:.0f} %{'' if row['met'] else ', **missed**'}"
            times = " | ".join(f"{row[name]:.2f} s" for name in ("run_s", "promised_s", "rerun_s"))
            error = f"{100 * row['error']:+.1f} %"
            lines.append(f"| {row['case']} | {row['found']} | {times} | {error} | {goal} |")
    else:
        lines = [
            f"**Workers 1.2 times as slow, named within {WITHIN} iterations**",
            "",
            "| law of the noise, cv | recall | precision | named after, median | 99 % | "
            "clusters without a slow worker in which one was named | |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            cells = [row["what"], *(f"{100 * row[key]:.2f} %" for key in ("recall", "precision"))]
            cells += [_number(row["median"]), _number(row["late"]), row["false"]]
            note = "" if row["off"] is None else f"ends {row['off']:.2g} iterations off on average"
            cells.append(note if row["met"] else f"{note} **missed**")
            lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _record(found: dict[str, Any]) -> None:
    """Keep the parts that were measured, beside those of earlier."""
    kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    kept |= {part: {**rows, **recorded.origin()} for part, rows in found.items()}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    recorded.write_tables(COMMAND, tables(kept))


def tables(kept: dict[str, Any]) -> str:
    """Return the tables of these results."""
    found: list[str] = []
    for part in PARTS:
        if part in kept:
            said = f"{kept[part]['date']}, commit {kept[part]['commit']}."
            found += [said, "", *_markdown(part, kept[part])]
    return "\n".join(found)


if __name__ == "__main__":
    sys.exit(main())
