"""The page about advice: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outpace.report.advice.result import BSP, AdviceResult
from outpace.report.advice.words import gain, rows, sentences, target_words
from outpace.report.figures.figure import (
    PHASES,
    Figure,
    axis,
    axis_from_0,
    bars,
    colour,
    dots,
    rounded,
    view,
)
from outpace.report.frame import write_page
from outpace.report.parts import Bullets, Cell, Code, Row, Section, Table, Tiles, Words, warning
from outpace.report.words import SPACE, escaped, factor, percent, plural, seconds
from outpace.support.yaml_files import write_yaml


def write_advice_page(advice: AdviceResult, path: Path) -> None:
    """Write the page to `path`. Raises ConfigError if the file cannot be written."""
    sections = [
        _recommendation(advice),
        _times(advice),
        _where_time_goes(advice),
        _changes(advice),
        _verified(advice),
        _candidates(advice),
        _left_out(advice),
        _method(advice),
    ]
    name = Path(advice.configuration).name
    write_page(
        path,
        title=f"Outpace: advice for {name}",
        heading=f"Advice: {name}",
        what=f"{plural(advice.workers, 'worker')}, {target_words(advice)}, "
        f"{plural(len(advice.candidates), 'candidate')}, in virtual time",
        findings=sentences(advice),
        sections=[section for section in sections if section is not None],
        notices=[warning(text) for text in advice.warnings],
    )


def _recommendation(advice: AdviceResult) -> Section:
    numbers = {"strategy": advice.name}
    if advice.ahead is not None:
        numbers["ahead, not sure"] = advice.ahead.name
    over, to_all = advice.speedup_over_bsp, advice.speedup_over_all_reduce
    if over.mean is None:
        numbers["as fast as BSP"] = "not known"
    elif advice.name != BSP:
        numbers["as fast as BSP"] = gain(over)
    if to_all.mean is not None:
        numbers["as fast as all-reduce"] = gain(to_all)
    known = {n: p for n, p in advice.probability_best.items() if p is not None}
    if advice.name in known:
        fastest = max(known, key=lambda name: known[name])
        also = "" if fastest == advice.name else f"; {fastest} {percent(known[fastest], 0)}"
        numbers["probability of being the fastest"] = f"{percent(known[advice.name], 0)}{also}"
    both, pair = advice.one_run.both, advice.one_run.speedup_over_bsp.both
    if both.low is not None and both.high is not None:
        numbers["one run (90 %)"] = f"{seconds(both.low)} to {seconds(both.high)}"
    if pair.low is not None and pair.high is not None:
        low, high = factor(pair.low), factor(pair.high)
        numbers["one run beside one of BSP (90 %)"] = f"{low} to {high} times as fast"
    command = [Code(advice.command)] if advice.command else []
    shown = Code(write_yaml(advice.recommendation))
    return Section("recommendation", "Recommendation", [Tiles(numbers), *command, shown])


def _times(advice: AdviceResult) -> Section | None:
    """Return the times to the target with their intervals."""
    found = [each for each in advice.fresh if each.time_to_target_s.mean is not None]
    if not found:
        return None
    traces: list[Any] = []
    for each in found:
        time = each.time_to_target_s
        low, high = (
            0.0 if time.mean is None or end is None else abs(end - time.mean)
            for end in (time.low, time.high)
        )
        ends = {"symmetric": False, "array": rounded([high]), "arrayminus": rounded([low])}
        look = {
            "size": 11,
            "color": colour(len(traces)),
            "symbol": "triangle-right" if each.missed else "circle",
        }
        name = escaped(each.name)
        mark = dots(name, rounded([time.mean]), [name], None, **look)
        traces.append(mark.update(error_x=ends, showlegend=False))
    # Short enough for a narrow window.
    what = "loss" if advice.target.accuracy is None else "accuracy"
    title = f"virtual time to {what} {advice.target.value:g} (s)"
    layout = {
        "xaxis": axis_from_0(title),
        "yaxis": axis("", autorange="reversed"),
        "hovermode": "closest",
    }
    alt = "Time to the target of the finalists"
    height = 120 + 45 * len(found)
    lead = (
        "Finalists, BSP and all-reduce on fresh seeds, which had no part in the search: mean and "
        "95 % interval of the mean. All strategies have the same seeds. An arrow: runs missed the "
        "target, so the time is a lower bound."
    )
    figure = Figure("figure-times", alt, {(): view(traces, layout)}, height=height)
    return Section("times", "Time to the target", [figure], lead)


def _where_time_goes(advice: AdviceResult) -> Section | None:
    goes = {name: shares for name, shares in advice.time_goes.items() if shares}
    if not goes:
        return None
    traces = [
        bars(
            phase,
            [escaped(name) for name in goes],
            rounded([100 * shares[phase] for shares in goes.values()]),
            [f"{phase} {percent(shares[phase])}" for shares in goes.values()],
            {"color": look},
        )
        for phase, look in PHASES.items()
    ]
    layout = {
        "barmode": "stack",
        "xaxis": axis(""),
        "yaxis": axis("share of a worker's time (%)", range=[0, 100]),
        "hovermode": "closest",
    }
    figure = Figure("figure-why", "Shares of a worker's time", {(): view(traces, layout)})
    lead = "Mean over workers and fresh seeds. Waiting under BSP is what stragglers cost."
    return Section("why", "Where the time goes", [figure], lead)


def _changes(advice: AdviceResult) -> Section | None:
    """Return what would change the advice."""
    found = advice.sensitivity
    if not found:
        return None
    lines: list[Row] = []
    for each in found:
        factors = "\n".join(f"{name} {gain(f)}" for name, f in each.speedup_over_bsp.items())
        why = Cell(factors, look="lines") if each.best else each.reason or "no time left"
        lines.append([each.change, each.best or "-", why])
    return _table_section(
        "changes",
        "What would change the advice",
        ["change", "first", "as fast as BSP"],
        lines,
        "The finalists and BSP on a changed cluster, on the first three fresh seeds, with the "
        "learning rates of the unchanged one.",
    )


def _verified(advice: AdviceResult) -> Section | None:
    if not advice.verified:
        return None
    lines = [[v.name, v.predicted, v.measured] for v in advice.verified]
    lead = "Runs on this machine, and what virtual time predicted for them."
    head = ["strategy", "predicted", "for real"]
    return _table_section("verified", "On real processes", head, lines, lead)


def _candidates(advice: AdviceResult) -> Section:
    head, *cells = rows(advice)
    later = (
        f" The last but one column is the mean quality after {seconds(advice.whole_s)}: a strategy "
        "may be first at the target and behind later."
    )
    lead = (
        "A run that was stopped because it could not win, or missed the target, counts with the "
        'time that it ran: a lower bound. A time marked "search only" is of the best of several '
        "learning rates, on the seeds on which it was the best, so it is rather too good."
        f"{later if advice.whole_s else ''}"
    )
    return _table_section("candidates", "All candidates", head, cells, lead)


def _table_section(name: str, heading: str, head: Row, lines: Sequence[Row], lead: str) -> Section:
    return Section(name, heading, [Table(f"{name}-table", head, lines)], lead)


def _left_out(advice: AdviceResult) -> Section | None:
    if not advice.left_out:
        return None
    left = Bullets([f"{name}: {why}" for name, why in advice.left_out.items()])
    lead = "These strategies cannot be run with this configuration."
    return Section("left-out", "Left out", [left], lead)


def _method(advice: AdviceResult) -> Section:
    effort = advice.effort
    text = (
        f"{plural(effort.trials, 'trial')} of the search, {effort.processor_s:.0f}{SPACE}s of "
        f"processor time in {effort.elapsed_s:.0f}{SPACE}s."
    )
    why = (
        "Learning rates and finalists are chosen on other seeds than those of the report. The "
        "lower ends of speed-ups hold for all finalists at once, so choosing the best of them does "
        "not flatter it. BSP and all-reduce have at least as many trials as the finalists."
    )
    return Section("method", "How it was found", [Words(text), Words(why)])
