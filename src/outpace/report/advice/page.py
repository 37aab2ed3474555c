"""The page about advice: one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outpace.report.advice.result import AdviceResult
from outpace.report.advice.words import gain, rows, sentences
from outpace.report.figures.figure import Figure, axis, axis_from_0, colour, dots, rounded, view
from outpace.report.frame import write_page
from outpace.report.parts import Bullets, Code, Part, Section, Table, Tiles, warning
from outpace.report.words import escaped, factor, interval, plural, seconds, target_words
from outpace.support.yaml_files import write_yaml


def write_advice_page(advice: AdviceResult, path: Path) -> None:
    """Write the page to `path`. Raises ConfigError if the file cannot be written."""
    name = Path(advice.configuration).name
    trials = f"{plural(advice.trials, 'run')} in {seconds(advice.elapsed_s)}"
    write_page(
        path,
        title=f"Outpace: advice for {name}",
        heading=f"Advice: {name}",
        what=f"{plural(advice.workers, 'worker')}, {target_words(advice.target)}, "
        f"{plural(len(advice.candidates), 'candidate')}, in virtual time: {trials}",
        findings=sentences(advice),
        sections=[each for each in _sections(advice) if each.content],
        notices=[warning(text) for text in advice.warnings],
    )


def _sections(advice: AdviceResult) -> list[Section]:
    head, *cells = rows(advice)
    return [
        Section("recommendation", "Recommendation", _recommendation(advice)),
        Section(
            "times",
            "Time to the target",
            _times(advice),
            "Finalists, BSP and all-reduce on fresh seeds, which had no part in the search: mean "
            "and 95 % interval of the mean. An arrow: runs missed the target, so the time is a "
            "lower bound.",
        ),
        Section(
            "candidates",
            "All candidates",
            [Table("candidates-table", head, cells)],
            "A run that missed the target, or was stopped because it could not win, counts with "
            'the time that it had: a lower bound. A time marked "search only" is for the best of '
            "several learning rates, on the seeds that chose this rate, so it tends to be too "
            "short. Lower ends of speed-ups hold for all finalists at once, so the choice of the "
            "best one does not bias it.",
        ),
        Section(
            "left-out",
            "Left out",
            [Bullets([f"{n}: {why}" for n, why in advice.left_out.items()])]
            if advice.left_out
            else [],
            "These strategies cannot be run with this configuration.",
        ),
    ]


def _recommendation(advice: AdviceResult) -> list[Part]:
    one = advice.one_run
    numbers = {
        "strategy": advice.name,
        "as fast as BSP": gain(advice.speedup_over_bsp),
        "as fast as all-reduce": gain(advice.speedup_over_all_reduce),
        "one run (90 %)": interval(one.time_s, seconds),
        "one run, as fast as a run of BSP (90 %)": interval(one.speedup_over_bsp, factor),
    }
    tiles = Tiles({title: text for title, text in numbers.items() if text})
    command = [Code(advice.command)] if advice.command else []
    return [tiles, *command, Code(write_yaml(advice.recommendation))]


def _times(advice: AdviceResult) -> list[Part]:
    """Return the times to the target with their intervals."""
    found = [e for e in advice.in_order if e.fresh and e.time_to_target_s.mean is not None]
    traces: list[Any] = []
    for each in found:
        time = each.time_to_target_s
        mean = time.mean or 0.0
        low, high = (abs((mean if end is None else end) - mean) for end in (time.low, time.high))
        ends = {"symmetric": False, "array": rounded([high]), "arrayminus": rounded([low])}
        symbol = "triangle-right" if each.missed else "circle"
        name = escaped(each.name)
        look = {"size": 11, "color": colour(len(traces)), "symbol": symbol}
        mark = dots(name, rounded([mean]), [name], None, **look)
        traces.append(mark.update(error_x=ends, showlegend=False))
    # Short enough for a narrow window.
    title = f"virtual time to {advice.target.column.removeprefix('train_')} "
    layout = {
        "xaxis": axis_from_0(f"{title}{advice.target.value:g} (s)"),
        "yaxis": axis("", autorange="reversed"),
        "hovermode": "closest",
    }
    alt, height = "Time to the target of the finalists", 120 + 45 * len(found)
    return [Figure("figure-times", alt, {(): view(traces, layout)}, height=height)] if found else []
