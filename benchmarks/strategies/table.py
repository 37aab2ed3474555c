"""The recorded results in Markdown: a page of all, and a summary for the README."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.rows import table as markdown
from benchmarks.strategies.outcome import Measured, Outcome
from benchmarks.strategies.regret import Regret, judged, verdict
from benchmarks.strategies.suite import CLUSTERS, HERE

from outpace.experiment.advising.candidates import BSP
from outpace.support.estimates import Estimate

PAGE: Final = HERE / "RESULTS.md"
COMMAND: Final = "python -m benchmarks.strategies table"


def summary(
    outcomes: Sequence[Outcome], cells: Sequence[str], regrets: Sequence[Regret] = ()
) -> str:
    """Return the best strategy of each cell, and how good the advice is, for the README.

    Args:
        cells: names of all cells of the suite.
        regrets: regrets of `outpace advise`, for some of the cells.
    """
    complete = [each for each in outcomes if each.complete]
    known = {each.cell.name for each in complete}
    left = [name for name in cells if name not in known]
    lines = [_dated(complete)] if complete else ["Nothing is recorded yet."]
    if left:
        lines += ["", f"Without a complete result: {_grouped(left, cells)}."]
    if complete:
        lines += ["", *best(complete)]
    if regrets:
        lines += ["", f"Regret of `outpace advise` on {len(regrets)} cells: {verdict(regrets)}"]
    return "\n".join(lines)


def page(outcomes: Sequence[Outcome], regrets: Sequence[Regret] = ()) -> str:
    """Return the page of all results: the regrets, and a table of each task."""
    lines = [
        "# Results of the strategies",
        "",
        "`python -m benchmarks.strategies table` writes this page;",
        "[Benchmarks](../README.md#strategies) says what was measured.",
    ]
    complete = [each for each in outcomes if each.complete]
    for task in dict.fromkeys(each.cell.task for each in complete):
        of_task = {each.cell.cluster: each for each in complete if each.cell.task == task}
        lines += ["", f"`{task}`, time to the target relative to BSP:", "", *_of_task(of_task)]
    if regrets:
        when = dated([each.origin for each in regrets])
        lines += ["", f"Regret of `outpace advise` ({when}):", "", judged(regrets)]
    return "\n".join(lines) + "\n"


def _grouped(names: Sequence[str], cells: Sequence[str]) -> str:
    """Return names TASK/CLUSTER by task; `all of TASK` if all its cells are named."""
    groups = []
    for task in dict.fromkeys(name.partition("/")[0] for name in names):
        clusters = [name.partition("/")[2] for name in names if name.startswith(f"{task}/")]
        everything = len(clusters) == sum(name.startswith(f"{task}/") for name in cells)
        groups.append(f"all of {task}" if everything else f"{task} on {', '.join(clusters)}")
    return "; ".join(groups)


def dated(origins: Sequence[Mapping[str, str]]) -> str:
    """Return the dates and commits of results."""
    dates = sorted({each["date"] for each in origins})
    commits = dict.fromkeys(", ".join(each["commit"] for each in origins).split(", "))
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{when}, commit {', '.join(commits)}"


def _dated(outcomes: Sequence[Outcome]) -> str:
    when = dated([each.origin for each in outcomes])
    hours = sum(one.cpu_s for each in outcomes for one in each.strategies) / 3600
    cells = "1 cell" if len(outcomes) == 1 else f"{len(outcomes)} cells"
    return f"{when}: {cells}, {hours:.1f} hours of processor time."


def best(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a table of the best strategy of each cell: clusters in rows, tasks in columns.

    The text below the table explains its numbers.
    """
    tasks = list(dict.fromkeys(each.cell.task for each in outcomes))
    by_name = {each.cell.name: each for each in outcomes}
    rows = []
    for cluster in CLUSTERS:
        found = [by_name.get(f"{task}/{cluster}") for task in tasks]
        if any(found):
            rows.append([cluster, *("" if each is None else _best(each) for each in found)])
    meaning = [
        "The best strategy, its time to the target in times of BSP's with a 95 % interval, and how",
        "many others the seeds do not tell apart from it.",
    ]
    return [*markdown(["cluster", *tasks], rows), "", *meaning]


def _best(outcome: Outcome) -> str:
    winner = outcome.best
    if winner is None:
        return "no strategy reached the target on all seeds"
    if winner.name == BSP:
        return f"{BSP}; {len(outcome.alike)} alike"
    text = f"{winner.name}: {ratio(outcome.relative(winner))}"
    if not outcome.relative(winner).excludes(1.0):
        return f"none is reliably sooner than BSP ({text})"
    return f"{text}; {len(outcome.alike)} alike"


def _of_task(outcomes: Mapping[str, Outcome]) -> list[str]:
    clusters = [name for name in CLUSTERS if name in outcomes]
    names = list(
        dict.fromkeys(each.name for name in clusters for each in outcomes[name].strategies)
    )
    rows = [[name, *(_cell(outcomes[cluster], name) for cluster in clusters)] for name in names]
    return markdown(["strategy", *clusters], rows)


def _cell(outcome: Outcome, name: str) -> str:
    measured = next((each for each in outcome.strategies if each.name == name), None)
    if measured is None:
        return ""
    text = seconds(measured) if name == BSP else ratio(outcome.relative(measured))
    text += "†" if measured.tuned.at_edge else ""
    return f"**{text}**" if outcome.best is measured else text


def seconds(measured: Measured) -> str:
    """Return the mean time with its interval, such as `6.40 s (6.10 to 6.70)`."""
    found = measured.time_s
    if found.mean is None:
        return "?"
    if measured.reached < len(measured.times):
        return f"> {found.mean:.2f} s"
    between = "" if found.low is None else f" ({found.low:.2f} to {found.high:.2f})"
    return f"{found.mean:.2f} s{between}"


def ratio(estimate: Estimate) -> str:
    """Return a ratio with its interval, such as `0.62 (0.58 to 0.66)`; a bound as `> 3.00`."""
    if estimate.mean is None:
        return "?"
    if estimate.high is None and estimate.low is not None:
        return f"> {estimate.low:.2f}"
    if estimate.low is None and estimate.high is not None:
        return f"< {estimate.high:.2f}"
    if estimate.low is None:
        return f"{estimate.mean:.2f}"
    return f"{estimate.mean:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
