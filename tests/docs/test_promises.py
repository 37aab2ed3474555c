"""Every promise in a table of the documentation names the tests that hold it.

A cell of the column `test` has files or folders below tests/, and words of the names of their
tests: `tests/a.py`: words of a name; words of another; `tests/b.py`, `tests/c.py`. "The same" is
the last file of the row above. A bracket in the text that begins with such a file is like a cell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.support.paths import ROOT

PAGES = [ROOT / "docs" / name for name in ("failures.md", "real.md", "security.md")]
_FILES = re.compile(r"(?:, )?`(tests/[\w/.]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_promise_names_a_test_that_exists(page: Path):
    wrong = list(problems(cells(page.read_text())))
    assert not wrong, "\n".join(wrong)


def cells(text: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of a page that name tests, each with its line number."""
    is_table_of_tests = False
    for number, line in enumerate(text.splitlines(), 1):
        last = line.strip("|").split("|")[-1].strip()
        if not line.startswith("|"):
            is_table_of_tests = False
            yield from ((number, found) for found in re.findall(r"\((`tests/[^()]*)\)", line))
        elif last == "test":
            is_table_of_tests = True
        elif is_table_of_tests and not set(last) <= set("-: "):
            yield number, last


def problems(said: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Yield the errors in the names of tests in these cells."""
    tests: list[str] = []
    for number, cell in said:
        if not cell.startswith(("the same", "`")):
            yield f"line {number}: names no test: {cell}"
            continue
        for part in cell.split("; "):
            words = part.removeprefix("the same").removeprefix(": ")
            if files := _FILES.findall(part):
                words = _FILES.sub("", part, count=len(files)).removeprefix(": ")
                missing = [file for file in files if not (ROOT / file).exists()]
                tests = [name for file in files for name in names(ROOT / file)]
                yield from (f"line {number}: there is no {file}" for file in missing)
                if not (missing or tests):
                    yield f"line {number}: names no test: {part}"
            if tests and not any(re.sub(r"\W+", "_", words).lower() in name for name in tests):
                yield f"line {number}: no test is named: {words}"


def names(path: Path) -> list[str]:
    """Return the names of the tests in a file, or in all files of a folder."""
    files = [path] if path.is_file() else sorted(path.rglob("test_*.py"))
    return [
        name
        for file in files
        if file.exists()
        for name in re.findall(r"^def (test_\w+)", file.read_text(), flags=re.MULTILINE)
    ]
