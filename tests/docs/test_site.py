"""The site of the documentation has every page and every public name. `make docs` builds it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from tests.support.paths import ROOT

import outpace
import outpace.sync


def paths(nav: Any) -> Iterator[str]:
    """Paths of the pages in a part of the navigation."""
    if isinstance(nav, str):
        yield nav
        return
    for entry in nav.values() if isinstance(nav, dict) else nav:
        yield from paths(entry)


def _has(text: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", text) is not None


def test_every_page_is_in_the_navigation():
    nav = YAML(typ="safe").load(ROOT / "mkdocs.yml")["nav"]
    there = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert {path for path in paths(nav) if re.fullmatch(r"docs/[^/]+", path)} == there


def test_every_public_name_is_in_the_api_reference():
    text = (ROOT / "docs" / "api.md").read_text()
    found = set(re.findall(r"^::: outpace\.(?:sync\.)?(\w+)$", text, flags=re.MULTILINE))
    assert found == {*outpace.__all__, *outpace.sync.__all__} - {"__version__"}


def test_every_public_function_describes_its_arguments_and_errors():
    public = [getattr(room, name) for room in (outpace, outpace.sync) for name in room.__all__]
    members = [each for name in public for _, each in inspect.getmembers(name, inspect.isfunction)]
    functions = {
        each
        for each in [*filter(inspect.isfunction, public), *members]
        if each.__module__.startswith("outpace") and not each.__name__.startswith("_")
    }
    lacking = []
    for function in functions:
        text, source = inspect.getdoc(function) or "", inspect.getsource(function)
        words = {*inspect.signature(function).parameters} - {"self"}
        if re.search(r"^ +raise ", source, flags=re.MULTILINE):
            words.add("Raises")
        lacking += [(function.__qualname__, each) for each in words if not _has(text, each)]
    assert len(functions) > 50
    assert lacking == []


def test_every_decision_is_in_the_list():
    folder = ROOT / "docs" / "adr"
    listed = re.findall(r"\]\(([^)]+)\)", (folder / "README.md").read_text())
    assert listed == sorted(path.name for path in folder.glob("0*.md"))
