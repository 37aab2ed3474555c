"""Writes pages: one HTML file with sections, by the templates in `templates/`.

plotly.js draws the figures. It has 2 MB, compressed. The pages of a comparison share one file in
the comparison's folder; any other page contains plotly.js, so that it can be sent as a single file.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from outpace.errors import ConfigError
from outpace.report.figures.figure import Figure
from outpace.report.parts import Part, Section
from outpace.support.replacing import replace_file
from outpace.support.version import __version__
from outpace.support.words import printable

LIBRARY: Final = "plotly.js"  # name of the file in the folder of a comparison
# number of folders in which a page looks for the file: its own and the ones above
_LEVELS: Final = 4


def write_page(
    path: Path,
    *,
    title: str,
    heading: str,
    what: str,
    findings: Sequence[str],
    sections: Sequence[Section],
    notices: Sequence[Part] = (),
    footer: Sequence[Part] = (),
) -> None:
    """Write the page.

    Args:
        what: a line that describes the runs.
        findings: sentences about the results.
        notices: notices that a reader must not overlook.

    Raises:
        ConfigError: if `path` cannot be written.
    """
    content = [part for section in sections for part in section.content]
    figures = [part for part in content if isinstance(part, Figure) and part.views]
    drawn = {figure.id: figure.plain() for figure in figures}
    text = (
        _environment()
        .get_template("page.html")
        .render(
            title=title[:120],
            heading=heading,
            what=what,
            findings=findings,
            notices=notices,
            sections=sections,
            footer=footer,
            figures=drawn and _packed(json.dumps(drawn, allow_nan=False, separators=(",", ":"))),
            library=_library_for(path),
            packed_plotly=_packed_plotly(),
            version=__version__,
            today=datetime.date.today(),
        )
    )
    _write(path, text)


def write_library(folder: Path) -> None:
    """Write plotly.js for all later pages in this folder, or in folders below it.

    Raises:
        ConfigError: if it cannot be written.
    """
    _write(folder / LIBRARY, _packed_plotly())


def _library_for(page: Path) -> str:
    """Return the path of plotly.js relative to the page; empty if no folder above has it.

    A file with other content, from another version or from an untrusted source, does not count.
    """
    above = list(page.absolute().parents)[:_LEVELS]
    for folder in above:
        file = folder / LIBRARY
        try:
            if file.is_file() and file.read_bytes() == _packed_plotly().encode():
                return Path(os.path.relpath(file, above[0])).as_posix()
        except OSError:
            continue
    return ""


def _write(path: Path, text: str) -> None:
    # Half a surrogate pair in a name or message must not stop the page from being written.
    data = text.encode("utf-8", "replace")
    try:
        replace_file(path, lambda partial: partial.write_bytes(data))
    except OSError as error:
        raise ConfigError(f"cannot write the report {path}: {error.strerror}") from error


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: Any) -> Any:
    """Return a text without characters that would control a terminal or a browser."""
    return printable(value) if type(value) is str else value


@cache
def _packed_plotly() -> str:
    """Return a script with plotly.js, compressed, in a variable."""
    return f'window.packedPlotly = "{_packed(get_plotlyjs())}";\n'


def _packed(text: str) -> str:
    """Return a compressed text in base 64."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")
