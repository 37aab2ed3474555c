"""Writes the page about a sweep."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from outpace.report.frame import write_page
from outpace.report.parts import Bullets, Cell, Code, Details, Part, Row, Section, Table, Words
from outpace.report.sweeps.figures import slices
from outpace.report.sweeps.result import Candidate, Dimension, SweepResult, in_order, shown
from outpace.report.words import interval, listed, number, plural, seconds, target_words
from outpace.support.estimates import Estimate, TimeTo, difference_of, ratio_of
from outpace.support.regular_files import read_text

# share of a range: if the best value is this near to its end, a wider range is suggested
_NEAR: Final = 0.05
_MEANINGS: Final = (
    "Too slow: the mean of its times was already larger than the best time to the target. Pruned: "
    "worse than three quarters of the others at the same virtual time. Missed: a run ended without "
    "the target. Failed: a run ended with an error. Invalid: the values make no configuration."
)
_SLICES: Final = (
    "Each candidate against one of its values; the other values also differ. A candidate without a "
    "value is an arrow at the point at which it was ended: it had not reached the target, and "
    "would have taken longer."
)


def write_sweep_page(data: SweepResult, path: Path, best: Path | None) -> None:
    """Write the page to `path`.

    Args:
        data: the result of the sweep.
        best: the file with the best configuration; None, or absent, if there is none.

    Raises:
        ConfigError: if the file cannot be written.
    """
    sections = [
        Section("slices", "Slices", [slices(data)], _SLICES),
        Section("all", "Candidates", [_table(data), *_errors(data)], _MEANINGS),
    ]
    if best is not None and best.is_file():
        quoted = shlex.quote(str(best))
        content: list[Part] = [
            Code(f"outpace simulate {quoted}\noutpace run {quoted}"),
            Details(best.name, [Code(read_text(best))]),
        ]
        sections.insert(0, Section("best", "Run the best one", content))
    ended = {"budget": "The budget was spent", "interrupted": "The sweep was interrupted"}
    notice = f"{ended.get(data.status)} before all candidates were tried; --resume continues it."
    seeds = ", ".join(map(str, data.seeds))
    write_page(
        path,
        title=f"Outpace: sweep of {data.source}",
        heading=f"Sweep: {listed([each.key for each in data.space])}",
        what=f"{Path(data.source).name} · {data.objective.words} · seeds {seeds} · {data.method}",
        findings=findings(data),
        sections=sections,
        notices=[Words(notice, "notice")] if data.status in ended else [],
    )


def findings(data: SweepResult) -> list[str]:
    """Return the findings of the sweep in sentences, the most important first."""
    counts: dict[str, int] = {}
    for each in data.candidates:
        counts[each.status] = counts.get(each.status, 0) + 1
    parts = [f"{count} {status.replace('-', ' ')}" for status, count in sorted(counts.items())]
    tried = f"{plural(len(data.candidates), 'candidate')} in {seconds(data.wall_s)}"
    counted = f"{tried}: {', '.join(parts) or 'none has ended'}."
    best = data.best
    if best is None or best.value is None:
        return [_nothing(data), counted]
    found = [_best(data, best, best.value), *_alike(data, best), counted]
    for dimension in data.space:
        found += _at_an_end(dimension, best.values[dimension.key])
    if counts["complete"] > 1:
        found.append(
            "The best of several candidates looks better than it is: run it with other seeds "
            "before you rely on the number."
        )
    return found


def _best(data: SweepResult, best: Candidate, value: float) -> str:
    show, target = data.objective.show, data.objective.target
    words = show(value)
    if found := interval(Estimate(value, best.low, best.high), show):
        words += f" (95 % interval of the mean: {found})"
    chosen = f"with {best.words} (candidate {best.number})"
    if target is not None:
        goal = target_words(target)
        return f"{goal[:1].upper()}{goal[1:]} is reached first {chosen}: after {words}."
    what = {"accuracy": "highest accuracy", "train_loss": "lowest training loss"}
    return f"The {what.get(data.objective.kind, 'shortest run')} is {words}, {chosen}."


def _nothing(data: SweepResult) -> str:
    """Say why there is no best candidate."""
    error = next((each.error for each in data.candidates if each.error is not None), None)
    target = data.objective.target
    ends = [(each.reached(data.objective), each) for each in data.candidates]
    reached = [(value, each) for value, each in ends if value is not None]
    if target is None or not reached:
        return f"No candidate is complete{'.' if error is None else f'; one failed: {error}'}"
    choose = min if target.accuracy is None else max
    value, each = choose(reached, key=lambda known: known[0])
    return (
        f"No candidate reached {target_words(target)}: the best was {number(value)} at the end of "
        f"candidate {each.number} ({each.words}). Lower the target, or give the runs more time "
        "(stop)."
    )


def _alike(data: SweepResult, best: Candidate) -> Iterator[str]:
    """Say which other candidates are not reliably worse than the best one."""
    complete = [each for each in data.candidates if each.status == "complete" and each is not best]
    alike = [str(each.number) for each in complete if not _apart(data, each, best)]
    if alike:
        names = f"{'candidates' if len(alike) > 1 else 'candidate'} {listed(alike)}"
        seeds = f"these {len(data.seeds)} seeds" if len(data.seeds) > 1 else "this seed"
        yield f"On {seeds} the best one cannot be told apart from {names}."


def _apart(data: SweepResult, each: Candidate, best: Candidate) -> bool:
    """True if an interval over the seeds says that a candidate is worse than the best one.

    With one seed, it is True if the values differ.
    """
    if len(data.seeds) < 2:
        return each.value != best.value
    if data.objective.is_time:
        times, first = ([TimeTo(run.time_s, True) for run in c.runs] for c in (each, best))
        return ratio_of(times, first).excludes(1.0)
    name = data.objective.kind
    values, firsts = ([float(getattr(run, name)) for run in c.runs] for c in (each, best))
    return difference_of(values, firsts).excludes(0.0)


def _at_an_end(dimension: Dimension, value: float) -> Iterator[str]:
    """Say that a range should be wider, if the best value is at its end."""
    if dimension.law:
        scale = math.log if dimension.law == "log" else float
        low, high = map(scale, dimension.values)
        share = (scale(value) - low) / (high - low)
        if not _NEAR < share < 1 - _NEAR:
            end = "lower" if share <= _NEAR else "upper"
            yield (
                f"The best {dimension.key}, {shown(value)}, is at the {end} end of its range: a "
                "wider range may have a better one."
            )


def _table(data: SweepResult) -> Table:
    """Return the table of the candidates, the best first."""
    show = data.objective.show
    keys = [each.key for each in data.space]
    rows: list[Row] = []
    for each in in_order(data.candidates, data.objective):
        found = interval(Estimate(each.value, each.low, each.high), show)
        look = each.status if each.status in ("complete", "failed") else "partial"
        rows.append(
            [
                f"{each.number}{' ★' if each is data.best else ''}",
                Cell("" if each.value is None else show(each.value), found),
                Cell(each.status.replace("-", " "), status=look),
                *(shown(each.values[key]) for key in keys),
                "" if each.ended_at_s is None else number(each.ended_at_s),
            ]
        )
    head = ["Candidate", data.objective.words, "Status", *keys, "ended at (s)"]
    return Table("candidates", head, rows)


def _errors(data: SweepResult) -> list[Part]:
    failed = [each for each in data.candidates if each.error is not None]
    lines = [f"{each.number} ({each.words}): {each.error}" for each in failed]
    return [Details("Errors of candidates", [Bullets(lines)])] if lines else []
