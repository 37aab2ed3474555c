"""The site of the documentation has every page and every public name. `make docs` builds it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from ruamel.yaml import YAML
from tests.support.paths import ROOT

import outpace
import outpace.sync
from outpace.sync import PeerStrategy, Policy
from outpace.sync.strategies import STRATEGIES


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


def _example(kind: type) -> str:
    """The indented lines of a docstring, without its lists of attributes and arguments."""
    text = inspect.cleandoc(kind.__doc__ or "")
    text = re.sub(r"^(Args|Attributes|Raises):\n(( .*)?\n?)*", "", text, flags=re.MULTILINE)
    lines = [line for line in text.split("\n") if not line or line.startswith("    ")]
    return inspect.cleandoc("\n" + "\n".join(lines))


def test_every_class_that_users_make_has_an_example_that_runs():
    """The example of a built-in strategy also shows its keys, which must mean the same."""
    names = {"dataclass": dataclass, "replace": replace, "torch": torch, "outpace": outpace}
    names |= {name: getattr(outpace.sync, name) for name in outpace.sync.__all__}
    for kind in (
        *(outpace.Experiment, outpace.Variant, outpace.Stop, outpace.Evaluate, outpace.Target),
        *(outpace.Task, outpace.Worker, outpace.Simulator, outpace.Control, Policy, PeerStrategy),
    ):
        assert _example(kind), kind
        exec(_example(kind), names)
    for strategy in STRATEGIES.values():
        if strategy.__module__.startswith("outpace.sync.p"):
            example = _example(strategy)
            (code,) = re.findall(r"^(outpace\..*\))", example, flags=re.MULTILINE)
            (keys,) = re.findall(r"# sync: (.*)$", example, flags=re.MULTILINE)
            made = eval(code, names)
            assert type(made) is strategy
            changed = {**names["keys"], "workers": 16, "sync": YAML(typ="safe").load(keys)}
            read = outpace.experiment_from(changed, "the example")
            assert made in (read.sync, read.peers)


def test_every_decision_is_in_the_list():
    folder = ROOT / "docs" / "adr"
    listed = re.findall(r"\]\(([^)]+)\)", (folder / "README.md").read_text())
    assert listed == sorted(path.name for path in folder.glob("0*.md"))
