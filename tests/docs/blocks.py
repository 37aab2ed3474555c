"""Finds the blocks of code on the pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.paths import ROOT

LANGUAGES = {"python", "yaml", "bash", "text"}
PAGES = [
    ROOT / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

# Why a block is not run stands above it: <!-- not run: needs two machines -->
_BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<why>[^\n]+) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^ *```$",
    flags=re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block of code; `why`: the reason why it is not run, or empty."""

    page: Path
    line: int
    language: str
    text: str
    why: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of a page in these languages, or in any."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        inside = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        line = 1 + text.count("\n", 0, match.start("language"))
        found.append(Block(page, line, match["language"], inside, match["why"] or ""))
    return [block for block in found if not languages or block.language in languages]


def run(*languages: str) -> list[Block]:
    """Return the blocks of all pages in these languages, without those that are not run."""
    return [block for page in PAGES for block in blocks(page, *languages) if not block.why]


def cases(*languages: str) -> list[object]:
    """Return a parameter of a test for each block that is run."""
    return [pytest.param(block, id=name(block)) for block in run(*languages)]


def pages(*languages: str) -> list[object]:
    """Return a parameter of a test for each page that has such a block: the page's blocks."""
    by_page: dict[Path, list[Block]] = {}
    for block in run(*languages):
        by_page.setdefault(block.page, []).append(block)
    return [pytest.param(found, id=path.name) for path, found in by_page.items()]


def name(block: Block) -> str:
    return f"{block.page.relative_to(ROOT)}:{block.line}"
