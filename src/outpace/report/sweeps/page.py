"""Writes the page about a sweep."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from outpace.report.frame import write_page
from outpace.report.parts import Bullets, Cell, Code, Details, Part, Row, Section, Table, Words
from outpace.report.sweeps.figures import courses, search, slices
from outpace.report.sweeps.result import WORDS, Candidate, Dimension, SweepResult, shown
from outpace.report.words import listed, number, percent, plural, seconds
from outpace.support.estimates import TimeTo, difference_of, ratio_of
from outpace.support.regular_files import read_text

_NAMED: Final = 5  # candidates in a sentence
_NEAR: Final = 0.05  # of a range: a best value so near to its end asks for a wider range
_ORDER: Final = ("complete", "missed", "too-slow", "pruned", "interrupted", "failed", "invalid")
_MEANING: Final = {
    "too-slow": "too slow: the mean of its times was already larger than the best time to the "
    "target",
    "pruned": "pruned: worse than three quarters of the others at the same virtual time",
    "missed": "missed the target: a run ended without it",
    "interrupted": "interrupted: by Ctrl-C, or the budget was spent",
    "failed": "failed: a run ended with an error",
    "invalid": "invalid: the values make no configuration",
}


def write_sweep_page(data: SweepResult, path: Path, best: Path | None) -> None:
    """Write the page to `path`.

    Args:
        data: what the sweep has found.
        best: the file with the best configuration; None, or absent, if there is none.

    Raises:
        ConfigError: if the file cannot be written.
    """
    evaluated = any(each.curve for each in data.candidates)
    sections = [
        *([_courses(data)] if evaluated else []),
        Section(
            "slices",
            "Slices",
            [slices(data)],
            "Each candidate against one of its values; the other values differ, too. "
            + (
                "An arrow is at the time at which a candidate was ended early: it had not "
                "reached the target, and would have taken longer."
                if data.objective.of_time
                else "A candidate without a value is shown at the value that it had when it ended."
            ),
        ),
        Section("search", "The search", [search(data)], _sentence(data.method)),
        Section("all", "Candidates", [_table(data), *_errors(data)], _meanings(data)),
    ]
    if best is not None and best.is_file():
        path_of_best = shlex.quote(str(best))
        content: list[Part] = [
            Code(f"outpace simulate {path_of_best}\noutpace run {path_of_best}"),
            Details(best.name, [Code(read_text(best))]),
        ]
        sections.insert(0, Section("best", "Run the best one", content))
    seeds = (
        f"seeds {data.seeds[0]} to {data.seeds[-1]}"
        if len(data.seeds) > 1
        else (f"seed {data.seeds[0]}")
    )
    write_page(
        path,
        title=f"Outpace: sweep of {data.source}",
        heading=f"Sweep: {listed([each.key for each in data.space])}",
        what=f"{Path(data.source).name} · {data.objective.words} · {seeds}",
        findings=findings(data),
        sections=sections,
        notices=[] if data.status == "complete" else [Words(_notice(data), "notice")],
    )


def findings(data: SweepResult) -> list[str]:
    """Return what the sweep has found in sentences, the most important one first."""
    found = [_best(data), _alike(data)]
    parts = [
        f"{count} {WORDS.get(status, status)}"
        for status in _ORDER
        if (count := data.counted(status))
    ]
    candidates = plural(len(data.candidates), "candidate")
    found.append(
        f"{candidates} in {seconds(data.wall_s)}: {', '.join(parts)}."
        if parts
        else "No candidate has ended."
    )
    if data.best is not None:
        found += [_at_an_end(each, data.best.values[each.key]) for each in data.space]
        if data.counted("complete") > 1:
            found.append(
                "The best of several candidates looks better than it is: run it with other seeds "
                "before you rely on the number."
            )
    return [sentence for sentence in found if sentence]


def _alike(data: SweepResult) -> str:
    """Say which other candidates are not reliably worse than the best one."""
    if data.best is None:
        return ""
    if len(data.seeds) < 2:
        return _tied(data, data.best)
    alike = []
    for each in data.candidates:
        if each.status != "complete" or each is data.best:
            continue
        one, best = data.results(each), data.results(data.best)
        if data.objective.of_time:
            times, first = ([TimeTo(value, True) for value in found] for found in (one, best))
            apart = ratio_of(times, first).excludes(1.0)
        else:
            apart = difference_of(one, best).excludes(0.0)
        if not apart:
            alike.append(str(each.number))
    if not alike:
        return ""
    names = _names(alike)
    return f"On these {len(data.seeds)} seeds the best one cannot be told apart from {names}."


def _tied(data: SweepResult, best: Candidate) -> str:
    """Say which other candidates have the same value as the best one."""
    others = [each for each in data.candidates if each.status == "complete" and each is not best]
    alike = [str(each.number) for each in others if each.value == best.value]
    if not alike:
        return ""
    names, verb = _names(alike), "reaches" if len(alike) == 1 else "reach"
    if data.objective.kind == "time-to-target":
        return (
            f"This is a tie: {names} {verb} it at the same time. Runs are compared at their "
            "evaluations; a shorter interval (evaluate) may tell them apart."
        )
    return f"This is a tie: {names} {'has' if len(alike) == 1 else 'have'} the same value."


def _names(numbers: Sequence[str]) -> str:
    if len(numbers) > _NAMED:
        return f"{len(numbers)} other candidates"
    return f"{'candidates' if len(numbers) > 1 else 'candidate'} {listed(numbers)}"


def _best(data: SweepResult) -> str:
    if data.best is None or data.best.value is None:
        return _nothing(data)
    value = data.show(data.best.value)
    if data.best.low is not None and data.best.high is not None:
        value += f" (95 % interval of the mean: {data.show(data.best.low)} to "
        value += f"{data.show(data.best.high)})"
    with_values = f"with {data.best.words} (candidate {data.best.number})"
    if data.objective.kind == "time-to-target":
        return (
            f"{data.goal[:1].upper()}{data.goal[1:]} is reached first {with_values}: after {value}."
        )
    what = {"accuracy": "highest accuracy", "train_loss": "lowest training loss"}
    return f"The {what.get(data.objective.kind, 'shortest run')} is {value}, {with_values}."


def _nothing(data: SweepResult) -> str:
    """Say why there is no best candidate."""
    if not data.candidates:
        return "No candidate has ended."
    failed = [each for each in data.candidates if each.status in ("failed", "invalid")]
    if len(failed) == len(data.candidates):
        first = (failed[0].error or "").partition("\n")[0]
        return f"All {plural(len(failed), 'candidate')} failed, the first one: {first}"
    if data.counted("interrupted") and not data.counted("missed"):
        why = "the budget was spent" if data.status == "budget" else "the sweep was interrupted"
        return f"No candidate has come to its end before {why}."
    if data.objective.kind != "time-to-target":
        return "No candidate has come to its end."
    share = data.objective.quantity == "accuracy"
    reached = [
        (value, each.number, each.words) for each in data.candidates for _, value in each.curve
    ]
    if not reached:
        return f"No candidate reached {data.goal}, and none was evaluated."
    value, at, words = max(reached) if share else min(reached)
    best = percent(value, 2) if share else number(value)
    return (
        f"No candidate reached {data.goal}: the best was {best}, of candidate {at} ({words}). "
        "Lower the target, or give the runs more time (stop)."
    )


def _at_an_end(dimension: Dimension, value: Any) -> str:
    """Say that a range should be wider, if the best value is at its end."""
    if not dimension.law:
        return ""
    low, high = dimension.values
    if dimension.law == "log":
        share = math.log(value / low) / math.log(high / low)
    else:
        share = (value - low) / (high - low)
    if _NEAR < share < 1 - _NEAR:
        return ""
    end = "lower" if share <= _NEAR else "upper"
    return (
        f"The best {dimension.key}, {shown(value)}, is at the {end} end of its range: a wider "
        "range may have a better one."
    )


def _courses(data: SweepResult) -> Section:
    first = " Candidate is the first seed of each candidate." if len(data.seeds) > 1 else ""
    lead = (
        "Each line is a candidate; it ends where its run reached the target or was ended. The "
        f"front is the best value that any candidate had by that time.{first}"
    )
    return Section("courses", "Courses of the candidates", [courses(data)], lead)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _notice(data: SweepResult) -> str:
    if data.status == "budget":
        return "The budget was spent before all candidates were tried."
    return "The sweep was interrupted; the study is kept and can be resumed."


def _meanings(data: SweepResult) -> str:
    there = [words for status, words in _MEANING.items() if data.counted(status)]
    return _sentence("; ".join(there)) if there else ""


def _table(data: SweepResult) -> Table:
    """Return the table of the candidates, the best first."""

    def key(each: Candidate) -> tuple[int, float, int]:
        value = 0.0 if each.value is None else each.value
        return _ORDER.index(each.status), -value if data.objective.maximized else value, each.number

    head = ["Candidate", data.objective.words, "Status", *(each.key for each in data.space)]
    head += ["ended at (s)", "accuracy", "training loss"]
    rows: list[Row] = []
    for each in sorted(data.candidates, key=key):
        interval = ""
        if each.low is not None and each.high is not None:
            interval = f"{data.show(each.low)} to {data.show(each.high)}"
        accuracy, loss = each.mean("accuracy"), each.mean("train_loss")
        status = each.status if each.status in ("complete", "failed") else "partial"
        rows.append(
            [
                f"{each.number}{' ★' if each is data.best else ''}",
                Cell("" if each.value is None else data.show(each.value), interval),
                Cell(WORDS.get(each.status, each.status), status=status),
                *(shown(each.values[dimension.key]) for dimension in data.space),
                "" if each.ended_at_s is None else number(each.ended_at_s),
                "" if accuracy is None else percent(accuracy, 2),
                "" if loss is None else number(loss),
            ]
        )
    return Table("candidates", head, rows)


def _errors(data: SweepResult) -> list[Part]:
    lines = [
        f"{each.number} ({each.words}): {each.error}"
        for each in data.candidates
        if each.error is not None
    ]
    return [Details("Errors of candidates", [Bullets(lines)])] if lines else []
