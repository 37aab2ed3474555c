"""The page about advice: one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outpace.report.advice.promise import estimate
from outpace.report.advice.words import BSP, gain, in_order, rows, sentences, target_words
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
from outpace.report.parts import Bullets, Cell, Code, Section, Table, Tiles, Words, warning
from outpace.report.words import SPACE, escaped, factor, percent, plural, seconds
from outpace.support.yaml_files import write_yaml


def write_advice_page(advice: Mapping[str, Any], path: Path) -> None:
    """Write the page to `path`. Raises ConfigError if the file cannot be written."""
    sections = [_recommendation(advice)]
    if _fresh(advice):
        sections.append(_times(advice))
    if any(advice["time_goes"].values()):
        sections.append(_where_time_goes(advice))
    if advice["front"]["points"]:
        sections.append(_front(advice))
    changed = advice["sensitivity"]
    if any("best" in each for each in changed) or (changed and advice["status"] == "complete"):
        sections.append(_changes(advice))
    if advice.get("verified"):
        sections.append(_verified(advice))
    sections.append(_table(advice))
    if advice["left_out"]:
        left = [f"{name}: {why}" for name, why in advice["left_out"].items()]
        lead = "These strategies cannot be run with this configuration."
        sections.append(Section("left-out", "Left out", [Bullets(left)], lead))
    sections.append(_method(advice))
    name = Path(str(advice["configuration"])).name
    write_page(
        path,
        title=f"Outpace: advice for {name}",
        heading=f"Advice: {name}",
        what=f"{plural(advice['workers'], 'worker')}, {target_words(advice)}, "
        f"{plural(len(advice['candidates']), 'candidate')}, in virtual time",
        findings=sentences(advice),
        sections=sections,
        notices=[warning(text) for text in advice.get("warnings", ())],
    )


def _recommendation(advice: Mapping[str, Any]) -> Section:
    text = write_yaml(advice["recommendation"])
    likely = advice.get("likely")
    numbers = {"strategy": str(advice["name"])}
    if likely is not None:
        numbers["probably best"] = str(likely["name"])
    over = estimate(advice["speedup_over_bsp"])
    if over.mean is None:
        numbers["as fast as BSP"] = "not known"
    elif advice["name"] != BSP:
        numbers["as fast as BSP"] = gain(over)
    to_all = estimate(advice["speedup_over_all_reduce"])
    if to_all.mean is not None:
        numbers["as fast as all-reduce"] = gain(to_all)
    probability = advice["probability_best"].get(advice["name"])
    if probability is not None:
        numbers["probability of being the fastest"] = percent(probability, 0)
    both = estimate(advice["one_run"]["both"])
    if both.low is not None and both.high is not None:
        numbers["one run (90 %)"] = f"{seconds(both.low)} to {seconds(both.high)}"
    pair = estimate((advice["one_run"].get("speedup_over_bsp") or {}).get("both"))
    if pair.low is not None and pair.high is not None:
        low, high = factor(pair.low), factor(pair.high)
        numbers["one run beside one of BSP (90 %)"] = f"{low} to {high} times as fast"
    command = [Code(advice["command"])] if advice["command"] else []
    return Section("recommendation", "Recommendation", [Tiles(numbers), *command, Code(text)])


def _fresh(advice: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in in_order(advice) if each["fresh"]]


def _colour(advice: Mapping[str, Any], name: str) -> str:
    """Return the colour of a strategy, the same in all figures."""
    return colour([each["name"] for each in _fresh(advice)].index(name))


def _time_title(advice: Mapping[str, Any]) -> str:
    """Return the title of an axis of times, short enough for a narrow window."""
    target = advice["target"]
    (name,) = target
    return f"virtual time to {name} {target[name]:g} (s)"


def _times(advice: Mapping[str, Any]) -> Section:
    """Return the times to the target with their intervals."""
    found = _fresh(advice)
    traces = []
    for each in found:
        time = estimate(each["time_to_target_s"])
        if time.mean is None:
            continue
        low = 0.0 if time.low is None else time.mean - time.low
        high = 0.0 if time.high is None else time.high - time.mean
        name, ink = escaped(each["name"]), _colour(advice, each["name"])
        ends = {"symmetric": False, "array": rounded([high]), "arrayminus": rounded([low])}
        mark = dots(name, rounded([time.mean]), [name], None, size=11, color=ink)
        traces.append(mark.update(error_x=ends, showlegend=False))
    layout = {
        "xaxis": axis_from_0(_time_title(advice)),
        "yaxis": axis("", autorange="reversed"),
        "hovermode": "closest",
    }
    figure = Figure(
        "figure-times",
        "Time to the target of the finalists",
        {(): view(traces, layout)} if traces else {},
        height=120 + 45 * len(found),
    )
    return Section(
        "times",
        "Time to the target",
        [figure],
        "Finalists, BSP and all-reduce on fresh seeds, which had no part in the search: mean and "
        "95 % interval of the mean. All strategies have the same seeds.",
    )


def _where_time_goes(advice: Mapping[str, Any]) -> Section:
    goes = {name: shares for name, shares in advice["time_goes"].items() if shares}
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
    return Section(
        "why",
        "Where the time goes",
        [Figure("figure-why", "Shares of a worker's time", {(): view(traces, layout)})],
        "Mean over workers and fresh seeds. Waiting under BSP is what stragglers cost.",
    )


def _front(advice: Mapping[str, Any]) -> Section:
    is_accuracy = "accuracy" in advice["target"]
    traces = []
    for point in advice["front"]["points"]:
        time, final = estimate(point["time_s"]), estimate(point["final"])
        if time.mean is None or final.mean is None:
            continue
        x, y = rounded([time.mean]), rounded([final.mean])
        look = {"size": 11, "color": _colour(advice, point["name"])}
        traces.append(dots(escaped(point["name"]), x, y, None, **look))
    layout = {
        "xaxis": axis_from_0(_time_title(advice)),
        "yaxis": axis(
            "accuracy later" if is_accuracy else "training loss later", rangemode="nonnegative"
        ),
        "hovermode": "closest",
    }
    later = seconds(advice["front"]["time_s"])
    which = "mean of the first two seeds" if len(advice["seeds"]) > 1 else "on one seed"
    return Section(
        "front",
        "Time to the target against the final quality",
        [Figure("figure-front", "Time against quality", {(): view(traces, layout)})],
        f"The quality after {later} of virtual time, {which}: a strategy may be first at the "
        "target and behind later.",
    )


def _changes(advice: Mapping[str, Any]) -> Section:
    """Return what would change the advice."""
    lines = []
    for each in advice["sensitivity"]:
        if "best" not in each:
            lines.append([each["change"], "-", each["reason"] or "no time left"])
            continue
        factors = [
            f"{name} {gain(estimate(found))}" for name, found in each["speedup_over_bsp"].items()
        ]
        lines.append([each["change"], each["best"], Cell("\n".join(factors), look="lines")])
    return Section(
        "changes",
        "What would change the advice",
        [Table("changes-table", ["change", "first", "as fast as BSP"], lines)],
        "The finalists and BSP on a changed cluster, on the first three fresh seeds, with the "
        "learning rates of the unchanged one.",
    )


def _verified(advice: Mapping[str, Any]) -> Section:
    lines = [
        [str(each[key]) for key in ("name", "predicted", "measured")] for each in advice["verified"]
    ]
    return Section(
        "verified",
        "On real processes",
        [Table("verified-table", ["strategy", "predicted", "for real"], lines)],
        "Runs on this machine, and what virtual time predicted for them.",
    )


def _table(advice: Mapping[str, Any]) -> Section:
    head, *cells = rows(advice)
    return Section(
        "candidates",
        "All candidates",
        [Table("candidates-table", head, cells)],
        "A run that was stopped because it could not win, or missed the target, counts with the "
        'time that it ran: a lower bound. A time marked "search only" is of the best of several '
        "learning rates, on the seeds on which it was the best, so it is rather too good.",
    )


def _method(advice: Mapping[str, Any]) -> Section:
    effort = advice["effort"]
    share = effort["processor_s_of_finalists"] / max(1e-9, effort["processor_s"])
    own = f", of which {percent(share, 0)} for the finalists" if effort["finalists"] else ""
    text = (
        f"{plural(effort['trials'], 'trial')} of the search, {effort['processor_s']:.0f}{SPACE}s "
        f"of processor time in {effort['elapsed_s']:.0f}{SPACE}s{own}."
    )
    why = (
        "Learning rates and finalists are chosen on other seeds than those of the report. The "
        "lower ends of speed-ups hold for all finalists at once, so choosing the best of them does "
        "not flatter it. BSP and all-reduce have at least as many trials as the finalists."
    )
    return Section("method", "How it was found", [Words(text), Words(why)])
