"""The frame of all pages: one self-contained HTML file with sections."""

from __future__ import annotations

import base64
import datetime
import gzip
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

from plotly.offline import get_plotlyjs

from outpace.errors import ConfigError
from outpace.report.figures.figure import Figure
from outpace.report.words import embedded, escaped
from outpace.support.replacing import replace_file
from outpace.support.version import __version__

_MARK: Final = b'<meta name="generator" content="outpace">'  # near the start of frame.html


class Section(NamedTuple):
    """A part of a page: a heading, a paragraph that explains, and figures or HTML."""

    id: str
    heading: str
    content: Sequence[Figure | str]
    lead: str = ""

    def html(self) -> str:
        lead = f'<p class="lead">{self.lead}</p>' if self.lead else ""
        parts = (part.html() if isinstance(part, Figure) else part for part in self.content)
        return f'<section id="{self.id}"><h2>{self.heading}</h2>{lead}{"".join(parts)}</section>'


def table(id: str, head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as HTML. The cells are HTML, too; the first one of a row is its header."""
    titles = "".join(f'<th scope="col">{title}</th>' for title in head)
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in rest)
        lines.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{id}"><table id="{id}">'
        f"<thead><tr>{titles}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def tiles(numbers: Mapping[str, str], hints: Mapping[str, str]) -> str:
    """Return numbers, which are HTML, by title, as HTML. A hint is shown on its title."""
    shown = "".join(
        f'<div><dt title="{escaped(hints.get(title, ""))}">{escaped(title)}</dt>'
        f"<dd>{number}</dd></div>"
        for title, number in numbers.items()
    )
    return f'<dl class="tiles">{shown}</dl>'


def warned(text: str, name: str = "") -> str:
    """Return a warning about what is named, if anything, as HTML."""
    named = f"<b>{escaped(name)}</b> " if name else ""
    return f'<p class="notice">{named}Warning: {escaped(text)}</p>'


def write_page(
    path: Path,
    *,
    title: str,
    heading: str,
    what: str,
    findings: Sequence[str],
    sections: Sequence[Section],
    notices: str = "",
    footer: str = "",
) -> None:
    """Write the page, with plotly.js, compressed, inside it. `notices` and `footer` are HTML.

    Args:
        what: a line that describes the runs.
        findings: sentences about the results.

    Raises:
        ConfigError: if `path` cannot be written.
    """
    content = [part for section in sections for part in section.content]
    figures = [part for part in content if isinstance(part, Figure) and part.views]
    text = Template(_asset("frame.html")).substitute(
        title=escaped(title[:120]),
        heading=escaped(heading),
        what=escaped(what),
        findings="".join(f"<li>{escaped(sentence)}</li>" for sentence in findings),
        notices=notices,
        body="\n".join(section.html() for section in sections),
        footer=f"{footer}<p>Outpace {__version__}, {datetime.date.today()}</p>",
        style=_asset("report.css"),
        plotly=_packed(get_plotlyjs()),
        figures=embedded({figure.id: figure.data() for figure in figures}),
        script=_asset("report.js"),
    )
    # Half a surrogate pair in a name or message must not stop the page from being written.
    data = text.encode("utf-8", "replace")
    try:
        replace_file(path, lambda partial: partial.write_bytes(data))
    except OSError as error:
        raise ConfigError(f"cannot write the report {path}: {error.strerror}") from error


def is_report(path: Path) -> bool:
    """True if the file is a page made by this module."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return _MARK in file.read(1000)
    except OSError:
        return False


@cache
def _packed(text: str) -> str:
    """Return a text, compressed, in base 64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


def _asset(name: str) -> str:
    return resources.files("outpace.report").joinpath(name).read_text(encoding="utf-8")
