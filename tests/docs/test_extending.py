"""The strategies and conditions of extending.md run as they are printed."""

from __future__ import annotations

import runpy

import pytest
from ruamel.yaml import YAML
from tests.docs.blocks import blocks
from tests.support.paths import ROOT

import outpace.testing

BASE = {
    "task": {"kind": "timing", "parameters": 100},
    "workers": 4,
    "compute": {"kind": "lognormal", "mean_s": 1.0, "cv": 0.3},
    "stop": {"iterations": 5},
}


def texts(language: str) -> list[str]:
    return [block.text for block in blocks(ROOT / "docs" / "extending.md", language)]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The user's file of extending.md, in the current folder."""
    files = [block for block in texts("python") if "# mine.py" in block]
    assert len(files) == 4
    (tmp_path / "mine.py").write_text("\n".join(files))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("block", "changes"),
    [
        ("conditions", {}),
        ("mine.py:often", {"sync": {"kind": "bsp"}}),
        ("Quorum", {"sync": {"arguments": {"quorum": 3}}}),
        ("EveryNth", {"task": {"kind": "digits-mlp"}}),
    ],
)
def test_the_strategies_of_extending_run(mine, block, changes):
    (text,) = (text for text in texts("yaml") if block in text)
    given = YAML(typ="safe").load(text)
    for key, value in changes.items():
        given[key] = given.get(key, {}) | value
    assert outpace.simulate(BASE | given).summary["status"] == "complete"


def test_the_classes_of_extending_pass_their_checks(mine):
    classes = runpy.run_path("mine.py")
    outpace.testing.check_policy(classes["Quorum"](quorum=3), bound=0)
    outpace.testing.check_strategy(classes["EveryNth"](every=2))
