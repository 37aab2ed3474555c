"""The frame of all pages: one self-contained HTML file."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Final

from plotly.offline import get_plotlyjs

from outpace.errors import ConfigError
from outpace.report.figures.figure import Figure
from outpace.report.words import embedded, escaped
from outpace.support.replacing import replace_file

# One of these marks is near the start of every page; older pages have only the second mark.
_MARKS: Final = (b'<meta name="generator" content="outpace">', b'<p class="brand">Outpace</p>')
_START: Final = 1 << 14  # bytes


@dataclass(frozen=True, slots=True)
class Page:
    """The content of a page. `body`, `notices` and `footer` are HTML; other texts are escaped.

    Attributes:
        what: a line that describes the runs.
        findings: sentences about the results.
        figures: the figures that are in the body.
    """

    title: str
    heading: str
    what: str
    findings: Sequence[str]
    body: str
    figures: Sequence[Figure]
    notices: str = ""
    footer: str = ""


def write_page(page: Page, path: Path) -> None:
    """Write the page, with plotly.js inside it. Raises ConfigError if `path` cannot be written."""
    text = Template(asset("frame.html")).substitute(
        title=escaped(page.title[:120]),
        heading=escaped(page.heading),
        what=escaped(page.what),
        findings="".join(f"<li>{escaped(sentence)}</li>" for sentence in page.findings),
        notices=page.notices,
        body=page.body,
        footer=f"{page.footer}<p>Outpace {escaped(_version())}, "
        f"{datetime.date.today().isoformat()}</p>",
        style=asset("report.css"),
        plotly=get_plotlyjs(),
        figures=embedded({figure.id: figure.data() for figure in page.figures if figure.views}),
        script=asset("report.js"),
    )
    # Half a surrogate pair in a name or message must not stop the page from being written.
    content = text.encode("utf-8", "replace")
    try:
        replace_file(path, lambda partial: partial.write_bytes(content))
    except OSError as error:
        raise ConfigError(f"cannot write the report {path}: {error.strerror}") from error


def is_report(path: Path) -> bool:
    """True if the file is a page made by this module."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            start = file.read(_START)
    except OSError:
        return False
    return any(mark in start for mark in _MARKS)


def asset(name: str) -> str:
    """Return the text of a file beside this one."""
    return resources.files("outpace.report").joinpath(name).read_text(encoding="utf-8")


def _version() -> str:
    try:
        return metadata.version("outpace")
    except metadata.PackageNotFoundError:
        return ""
