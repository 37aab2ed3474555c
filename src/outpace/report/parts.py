"""The parts of a page as data: tables, numbers, texts, lists. `templates/parts.html` shows them.

The template escapes all texts; the code of this package does not build HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from outpace.report.figures.figure import Figure


@dataclass(frozen=True, slots=True)
class Cell:
    """The content of a cell of a table, or of a tile.

    Attributes:
        note: a second line below, in small letters.
        look: classes of the style sheet, such as `words` and `code`.
        status: shows the text as a label: `complete`, `failed` or `partial`.
        colour: colour of a square before the text: the colour of a run in all figures.
        hint: text that is shown when the pointer is on the cell; only for titles.
    """

    text: str
    note: str = ""
    look: str = ""
    status: str = ""
    colour: str = ""
    hint: str = ""


def cell(content: str | Cell) -> Cell:
    return content if isinstance(content, Cell) else Cell(content)


Row = Iterable[str | Cell]


class Table:
    """A table; the first cell of a row is its header. A plain text is also accepted as a cell."""

    kind: ClassVar = "table"

    def __init__(self, id: str, head: Row, rows: Iterable[Row]) -> None:
        self.id = id
        self.head = [cell(each) for each in head]
        self.rows = [[cell(each) for each in row] for row in rows]


class Tiles:
    """Numbers by title; the hint of a title is shown when the pointer is on it."""

    kind: ClassVar = "tiles"

    def __init__(
        self, numbers: Mapping[str, str | Cell], hints: Mapping[str, str] | None = None
    ) -> None:
        self.numbers = {title: cell(each) for title, each in numbers.items()}
        self.hints = hints or {}


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph.

    Attributes:
        look: `legend` for small letters, `notice` for what a reader must not overlook.
        name: what the text is about, in bold letters before it.
    """

    kind: ClassVar = "words"
    text: str
    look: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    kind: ClassVar = "bullets"
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Code:
    """Commands or a file, shown unchanged."""

    kind: ClassVar = "code"
    text: str


@dataclass(frozen=True, slots=True)
class Details:
    """Parts that are folded up below their summary."""

    kind: ClassVar = "details"
    summary: str
    content: Sequence[Part]


Part = Figure | Table | Tiles | Words | Bullets | Code | Details


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page with a heading, and a paragraph that explains its content."""

    id: str
    heading: str
    content: Sequence[Part] = field(default_factory=list)
    lead: str = ""


def warning(text: str, name: str = "") -> Words:
    """Return a warning. name: what it is about; empty: the whole page."""
    return Words(f"Warning: {text}", "notice", name)
