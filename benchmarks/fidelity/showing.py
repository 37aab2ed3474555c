"""Tables of outcomes and goals."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.fidelity.judging import Goal
from benchmarks.fidelity.outcome import COUNTS, QUANTITIES, Outcome
from benchmarks.rows import table

from outpace.support.words import plural

_TABLES = "Mean over the seeds, predicted and real:"
_VERDICT = {None: "too few", True: "met", False: "missed"}


def markdown(outcomes: Sequence[Outcome], goals: Sequence[Goal], when: Mapping[str, str]) -> str:
    """Return the page of one setup: its goals first, then its tables."""
    lines = [f"# Fidelity of {outcomes[0].part}, {outcomes[0].setup}", ""]
    lines += [f"{when['date']}, commit {when['commit']}.", ""]
    if goals:
        found = [[each.what, each.found, each.goal, _VERDICT[each.met]] for each in goals]
        lines += [*table(["goal", "measured", "limit", ""], found), ""]
    lines += [_TABLES, ""]
    for title, head, rows in _tables(outcomes):
        lines += [f"**{title}**", "", *table(head, rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def goals_of(page: str, link: str) -> str:
    """Return the goals of a page that `markdown` wrote, below a line that links to the page."""
    head, _, rest = page.partition("\n\n")
    when, _, goals = rest.partition(_TABLES)[0].partition("\n\n")
    setup = head.removeprefix("# Fidelity of ")
    return f"**{setup}**, {when.rstrip('.')} ([all quantities]({link})):\n\n{goals}"


def _tables(
    outcomes: Sequence[Outcome],
) -> Iterable[tuple[str, list[str], list[list[str]]]]:
    """Yield title, head and rows of each kind of prediction. Cells are means over the seeds."""
    kinds = dict.fromkeys((each.setup, each.cluster, each.law) for each in outcomes)
    for setup, cluster, law in kinds:
        of_kind = [
            each
            for each in outcomes
            if (each.setup, each.cluster, each.law) == (setup, cluster, law)
        ]
        names = dict.fromkeys(each.strategy for each in of_kind)
        seeds = len({each.seed for each in of_kind})
        loads = [load for each in of_kind for load in each.load]
        title = (
            f"{of_kind[0].part}, {setup}: network and servers: {cluster}, run times: {law}; "
            f"{plural(seeds, 'seed')}; load {min(loads):.1f} to {max(loads):.1f}"
        )
        rows = [
            [name, *(_cell([o for o in of_kind if o.strategy == name], q) for q in QUANTITIES)]
            for name in names
        ]
        yield title, ["predicted / real", *QUANTITIES], rows


def _cell(outcomes: Sequence[Outcome], quantity: str) -> str:
    """Return predicted and real mean, and the difference in per cent."""
    pairs = [
        (predicted, real)
        for each in outcomes
        if (predicted := each.predicted.get(quantity)) is not None
        and (real := each.real.get(quantity)) is not None
    ]
    if not pairs:
        return "–"
    predicted, real = (statistics.fmean(values) for values in zip(*pairs, strict=True))
    form = ".2f" if quantity == "staleness" else ".0f" if quantity in COUNTS else ".3g"
    difference = f" ({predicted / real - 1:+.1%})" if real else ""
    return f"{predicted:{form}} / {real:{form}}{difference}"
