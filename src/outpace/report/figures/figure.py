"""What all figures share: colours, axes, and a figure with buttons that switch its views.

A figure is plain data for plotly.js. Fonts and the colours of grid and text are not set
here: the page sets them, for light and dark (report.js).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from outpace.report.words import escaped

Plot = dict[str, Any]

# Okabe and Ito's colours, told apart by the colour-blind; without yellow and black, which
# vanish on one of the two backgrounds. Beyond seven runs the dashes change.
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a8f98")
_DASHES: Final = ("solid", "dash", "dot", "dashdot")

# What a worker does. Work is quiet, waiting is what one looks for.
PHASES: Final = {"compute": "#6b8fbf", "communicate": "#b9c6d8", "wait": "#e4572e"}


def colour(run: int) -> str:
    """The colour of the run at that place, the same in every figure."""
    return _COLOURS[run % len(_COLOURS)]


def dash(run: int) -> str:
    return _DASHES[run // len(_COLOURS) % len(_DASHES)]


def axis(title: str, **more: Any) -> Plot:
    return {"title": {"text": title}, "zeroline": False, "automargin": True, **more}


@dataclass(frozen=True)
class FigureView:
    """One state of a figure, with a sentence or two below it."""

    traces: list[Plot]
    layout: Plot
    note: str = ""

    def data(self) -> Plot:
        return {"data": self.traces, "layout": self.layout, "note": self.note}


@dataclass(frozen=True)
class Choice:
    """A row of buttons, or a menu if there are many."""

    label: str
    options: Sequence[str]


@dataclass(frozen=True)
class Figure:
    """Views for every combination of the choices, last choice fastest.

    height: in pixels; `tall` if it must stay so on a phone. No views: only the words of
    `instead`.
    """

    id: str
    alt: str
    views: Sequence[FigureView]
    choices: Sequence[Choice] = field(default=())
    height: int = 380
    tall: bool = False
    instead: str = ""

    def html(self) -> str:
        if not self.views:
            return f'<p class="instead" id="{self.id}">{escaped(self.instead)}</p>'
        controls = "".join(
            _control(choice, f"{self.id}-{place}")
            for place, choice in enumerate(self.choices)
            if len(choice.options) > 1
        )
        return (
            f'<figure id="{self.id}" data-figure>'
            + (f'<div class="controls">{controls}</div>' if controls else "")
            + f'<div class="plot" role="img" aria-label="{escaped(self.alt)}"'
            f' style="height:{self.height}px"></div>'
            '<figcaption aria-live="polite"></figcaption></figure>'
        )

    def data(self) -> Plot:
        """For report.js. Views are keyed by the places of the options: `0,2`."""
        places = _combinations([len(choice.options) for choice in self.choices])
        return {
            "choices": len(self.choices),
            "height": self.height,
            "tall": self.tall,
            "views": {
                ",".join(map(str, key)): view.data()
                for key, view in zip(places, self.views, strict=True)
            },
        }


def _combinations(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(size) for size in sizes))


def _control(choice: Choice, name: str) -> str:
    place = name.rpartition("-")[2]
    label = escaped(choice.label)
    if len(choice.options) > 4:
        options = "".join(
            f'<option value="{value}">{escaped(option)}</option>'
            for value, option in enumerate(choice.options)
        )
        return (
            f'<label class="menu"><span>{label}</span>'
            f'<select data-choice="{place}">{options}</select></label>'
        )
    buttons = "".join(
        f'<button type="button" data-choice="{place}" value="{value}"'
        f' aria-pressed="{"false" if value else "true"}">{escaped(option)}</button>'
        for value, option in enumerate(choice.options)
    )
    return f'<div class="buttons" role="group" aria-label="{label}">{buttons}</div>'
