"""An explanation in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from outpace.report.explaining.explanation import Cause, Explanation, Faster, Gain
from outpace.report.words import SPACE, listed, percent, plural, seconds

_MOST: Final = 5  # causes that get a sentence
_PERIODS: Final = 3  # periods that are named
ALL_WORKERS: Final = "all workers as fast as the others"  # the change of a gain
MOST_WORKERS: Final = "all workers as fast as the fast ones"


def nothing(found: Explanation) -> str:
    """Return the sentence of an explanation without causes."""
    if not found.compared:
        return "Nothing was compared."
    *first, last = found.compared
    kinds = f"{', '.join(first)} or {last}" if first else last
    return f"In {plural(found.iterations, 'iteration')} no {kinds} was slower than the others."


def sentences(found: Explanation) -> list[str]:
    """Return a sentence for each cause, the most expensive first; at least one sentence."""
    if not found.causes:
        return [nothing(found) if found.faster is None else _two_groups(found, found.faster)]
    group = _half(found)
    causes = [cause for cause in found.causes if cause not in group]
    said = [_together(found, group)] if group else []
    said += [sentence(found, cause) for cause in causes[:_MOST]]
    if found.faster is not None:
        said.append(_two_groups(found, found.faster))
    if more := causes[_MOST:]:
        lost_s = sum(cause.lost_s for cause in more)
        said.append(f"{plural(len(more), 'more cause')} cost {seconds(lost_s)} together.")
    return said


def _half(found: Explanation) -> list[Cause]:
    """Return the slow workers if half of the workers or more are steadily slow."""
    group = [
        cause for cause in found.causes if cause.kind == "worker" and cause.pattern == "steady"
    ]
    return group if 2 * len(group) >= found.workers > 2 else []


def _together(found: Explanation, group: Sequence[Cause]) -> str:
    """Return such as `8 of 16 workers (0 to 7) are 1.3 times as slow as the other 8: ...`."""
    numbers = sorted(cause.worker for cause in group if cause.worker is not None)
    factors = sorted(cause.factor for cause in group)
    low, high = times(factors[0]), times(factors[-1])
    factor = low if low == high else f"{low} to {high}"
    lost_s = sum(cause.lost_s for cause in group)
    cost = f"{seconds(lost_s)} of {seconds(found.time_s)} ({percent(lost_s / found.time_s, 0)})"
    text = (
        f"{len(group)} of {found.workers} workers ({ranges(numbers)}) are {factor} times as slow "
        f"as the other {found.workers - len(group)}, steadily. Together they cost {cost}"
    )
    gain = next((gain for gain in found.gains if gain.change == ALL_WORKERS), None)
    if gain is None:
        return f"{text}."
    return f"{text}; if they were as fast, the run would take about {seconds(gain.run_s)}."


def _two_groups(found: Explanation, faster: Faster) -> str:
    """Return such as `10 of 16 workers are 1.3 times as slow as the other 6 (1, 4 and 8 to 11)`."""
    count = len(faster.workers)
    others = f"the other {count} ({ranges(faster.workers)})"
    if count == 1:
        others = f"worker {faster.workers[0]}"
    text = (
        f"{found.workers - count} of {found.workers} workers are {times(faster.factor)} times as "
        f"slow as {others}"
    )
    gain = next((gain for gain in found.gains if gain.change == MOST_WORKERS), None)
    if gain is None:
        return f"{text}."
    return f"{text}; if they were as fast, the run would take about {seconds(gain.run_s)}."


def ranges(numbers: Sequence[int]) -> str:
    """Join ascending numbers: `1, 4 and 8 to 11`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    words: list[str] = []
    for part in parts:
        words += [f"{part[0]} to {part[-1]}"] if len(part) > 2 else [str(each) for each in part]
    return listed(words)


def sentence(found: Explanation, cause: Cause) -> str:
    """Return what a cause costs, how it is slow, and what its repair would gain if known."""
    name = cause.name[0].upper() + cause.name[1:]
    cost = f"{seconds(cause.lost_s)} of {seconds(found.time_s)} ({percent(cause.share, 0)})"
    text = f"{name} costs {cost}: {pattern_words(cause)}"
    gain = next((gain for gain in found.gains if gain.cause == cause.name), None)
    if gain is None:
        return f"{text}."
    repaired = "without this stop" if is_stop(cause) else "if it were as fast"
    return f"{text}; {repaired}, the run would take about {seconds(gain.run_s)}."


def is_stop(cause: Cause) -> bool:
    """Return whether a server stood still, and was as fast as usual otherwise."""
    return cause.kind == "server" and cause.pattern == "once"


def times(factor: float) -> str:
    """Return a factor with three digits, or without decimal places: `1.31` or `1,280`."""
    return f"{factor:.3g}" if factor < 100 else f"{factor:,.0f}"


def pattern_words(cause: Cause) -> str:
    """Return such as `steady, 1.31 times as slow as the others`."""
    others = "otherwise" if is_stop(cause) else "the others"
    factor = f"{times(cause.factor)} times as slow as {others}"
    first = cause.periods[0]
    if cause.pattern == "steady":
        since = f" since iteration {first.first} ({seconds(first.start_s)})" if first.first else ""
        return f"steady, {factor}{since}"
    if cause.pattern == "once":
        span = _span(first.start_s, first.end_s)
        if first.first == first.last:
            return f"once, in iteration {first.first}, {factor} ({span})"
        return f"once, in iterations {first.first} to {first.last}, {factor} ({span})"
    spans = [_span(period.start_s, period.end_s) for period in cause.periods[:_PERIODS]]
    more = " and later" if len(cause.periods) > _PERIODS else ""
    return f"in {len(cause.periods)} bursts, {factor} ({', '.join(spans)}{more})"


def gain_words(gain: Gain) -> str:
    """Return such as `worker 3 as fast as the others: about 68.1 s, 12.4 s less`."""
    than = "less" if gain.saved_s >= 0 else "more"
    return f"{gain.change}: about {seconds(gain.run_s)}, {seconds(abs(gain.saved_s))} {than}"


def _span(start_s: float, end_s: float) -> str:
    return f"{start_s:.3g} to {end_s:.3g}{SPACE}s"
