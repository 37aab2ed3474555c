"""Formats numbers and users' texts for a report."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from typing import Final

from outpace.support.estimates import Estimate
from outpace.support.targets import Target
from outpace.support.words import plural as plural
from outpace.support.words import printable

SPACE: Final = "\N{NO-BREAK SPACE}"  # the space between a number and its unit
_LABEL: Final = 18  # characters


def escaped(text: object) -> str:
    """Escape a text for HTML and for plotly's labels, in which tags also have a meaning."""
    return html.escape(printable(str(text)))


def label(name: str) -> str:
    """Return a run's name for a figure: escaped, and without its middle if it is long."""
    return escaped(name if len(name) <= _LABEL else f"{name[:10]}…{name[-7:]}")


def on_node(name: str, node: str) -> str:
    """Return the name of a process for a figure, with its node if it has one."""
    return f"{name} ({label(node)})" if node else name


def number(value: float, digits: int = 3) -> str:
    """Format with `digits` significant digits, and all digits before the decimal point.

    12345.6 is `12,346`, 0.012 is `0.0120`. Numbers from a billion, and below about a thousandth,
    have an exponent: `1.1e+36`.
    """
    if value == 0:
        return "0"
    if abs(value) >= 1e9:
        return f"{value:.1e}"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    text = f"{value:#.{digits}g}".removesuffix(".")
    return text if "e" not in text else f"{value:.1e}"


def seconds(value: float) -> str:
    return f"{number(value)}{SPACE}s"


def percent(share: float, digits: int = 1) -> str:
    """Format a share in [0, 1]: 0.876 is `87.6 %`."""
    text = f"{100 * share:.{digits}f}"
    return f"{text.removesuffix('.0')}{SPACE}%"


def size(count: float) -> str:
    """Format bytes in decimal units: `294 MB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{number(count)}{SPACE}{unit}"


def times(factor: float) -> str:
    """Format a factor: `1.6×`."""
    digits = 2 if factor < 1.095 else 1 if factor < 9.95 else 0
    return f"{factor:.{digits}f}×"


def factor(value: float) -> str:
    return f"{value:.2f}"


def interval(estimate: Estimate, show: Callable[[float], str]) -> str:
    """Format the interval of an estimate: `1.20 to 1.31 s`; empty if an end is not known."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"{show(estimate.low).partition(SPACE)[0]} to {show(estimate.high)}"


def target_words(target: Target) -> str:
    """Return a target as text, such as `90 % accuracy` or `a training loss of 0.5`."""
    if target.loss is None:
        return f"{percent(target.value)} accuracy"
    return f"a training loss of {number(target.value)}"


def listed(items: Sequence[str]) -> str:
    """Join items: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
