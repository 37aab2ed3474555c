"""The documentation names files, links and keys that exist."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import LANGUAGES, blocks
from tests.support.paths import ROOT

from outpace.config.experiment import Experiment

PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "changes" / "README.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FOLDERS = ("src/", "tests/", "benchmarks/", "examples/", "docs/")


@pytest.fixture(params=PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def page(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+://", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor:
            assert anchor in headings(file), target


def test_every_file_that_is_named_exists(page: Path):
    for name in code_in(page.read_text()):
        if not re.fullmatch(r"[\w./-]+", name):
            continue
        below_package = page.name == "design.md" and ("/" in name or name.endswith(".py"))
        if name.startswith(FOLDERS):
            assert (ROOT / name).exists(), name
        elif below_package:
            assert (ROOT / "src" / "outpace" / name).exists(), name


def test_every_block_of_code_has_a_language(page: Path):
    # Blocks of python, yaml and bash are run by the tests beside this one; text is output.
    text = page.read_text()
    found = blocks(page)
    assert len(re.findall(r"^ *```", text, flags=re.MULTILINE)) == 2 * len(found)
    assert {block.language for block in found} <= LANGUAGES


def test_every_key_and_kind_of_the_configuration_is_on_its_page():
    text = (ROOT / "docs" / "configuration.md").read_text()
    named = set(re.findall(r"[\w-]+", " ".join(code_in(text))))
    assert set(keys(Experiment, set())) - named == set()


def code_in(text: str) -> list[str]:
    """Return the texts in `...`, outside of blocks of code."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))


def headings(file: Path) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", file.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in found}


def keys(option: type, seen: set[type]) -> Iterator[str]:
    """Return the keys of a dataclass of the configuration and of all below it, and their kinds."""
    if option in seen:
        return
    seen.add(option)
    hints = typing.get_type_hints(option)
    for entry in dataclasses.fields(option):
        yield str(entry.default) if entry.name == "kind" else entry.name
        for below in dataclasses_in(hints[entry.name]):
            yield from keys(below, seen)


def dataclasses_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from dataclasses_in(argument)
