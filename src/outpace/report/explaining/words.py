"""An explanation in sentences."""

from __future__ import annotations

from typing import Final

from outpace.report.explaining.explanation import Cause, Explanation, Gain
from outpace.report.words import SPACE, percent, plural, seconds

_MOST: Final = 5  # causes that get a sentence
_PERIODS: Final = 3  # periods that are named


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
        return [nothing(found)]
    said = [sentence(found, cause) for cause in found.causes[:_MOST]]
    if more := found.causes[_MOST:]:
        lost_s = sum(cause.lost_s for cause in more)
        said.append(f"{plural(len(more), 'more cause')} cost {seconds(lost_s)} together.")
    return said


def sentence(found: Explanation, cause: Cause) -> str:
    """Return what a cause costs, how it is slow, and what its repair would gain if known."""
    name = cause.name[0].upper() + cause.name[1:]
    cost = f"{seconds(cause.lost_s)} of {seconds(found.time_s)} ({percent(cause.share, 0)})"
    text = f"{name} costs {cost}: {pattern_words(cause)}"
    gain = next((gain for gain in found.gains if gain.cause == cause.name), None)
    if gain is None:
        return f"{text}."
    return f"{text}; if it were as fast, the run would take about {seconds(gain.run_s)}."


def pattern_words(cause: Cause) -> str:
    """Return such as `steady, 1.31 times as slow as the others`."""
    factor = f"{cause.factor:.3g} times as slow as the others"
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
