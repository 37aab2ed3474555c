"""The spans of a worker's time in which its script does something else than compute a gradient."""

from __future__ import annotations

from outpace.support.units import Time


class UntimedSpans:
    """Spans marked with `outpace.untimed`, in order and apart."""

    def __init__(self) -> None:
        self._spans: list[tuple[Time, Time]] = []

    def add(self, begun: Time, ended: Time) -> None:
        self._spans.append((begun, ended))

    def within(self, low: Time, high: Time) -> Time:
        """Return how much of the time from `low` to `high` is in spans (ns)."""
        if not self._spans:
            return 0
        return sum(max(0, min(end, high) - max(begin, low)) for begin, end in self._spans)

    def forget_before(self, time: Time) -> None:
        """Forget the spans that ended before this time."""
        if self._spans and self._spans[0][1] < time:
            self._spans = [span for span in self._spans if span[1] >= time]
