"""Code of the pages runs as it is printed."""

from __future__ import annotations

import re

import pytest
from ruamel.yaml import YAML
from tests.support.paths import ROOT

import outpace
from outpace.config.reading import experiment_from, sync_from
from outpace.experiment.comparison import variants_from
from outpace.sync import PeerStrategy

DOCS = ROOT / "docs"
BASE = {
    "task": {"kind": "timing", "parameters": 100},
    "workers": 4,
    "compute": {"kind": "lognormal", "mean_s": 1.0, "cv": 0.3},
    "stop": {"iterations": 5},
}
MINE = """
from outpace.sync import Bsp

def may_answer(pull, view, patience): ...

def MyStrategy(quorum):
    return Bsp()
"""


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The user's file of extending.md, in the current folder."""
    files = [block for block in blocks("extending.md", "python") if "# mine.py" in block]
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
    (text,) = (text for text in blocks("extending.md", "yaml") if block in text)
    given = YAML(typ="safe").load(text)
    for key, value in changes.items():
        given[key] = given.get(key, {}) | value
    assert outpace.simulate(BASE | given).summary["status"] == "complete"


def test_the_control_of_extending_runs(mine):
    (text,) = (text for text in blocks("extending.md", "python") if "def control" in text)
    text = text.replace('outpace.simulate("experiment.yaml"', "result = outpace.simulate(BASE")
    base = BASE | {"sync": {"kind": "bsp"}, "servers": 2}
    names = {"BASE": base}
    exec(text, names)
    assert names["result"].summary["status"] == "complete"


@pytest.mark.parametrize("text", blocks("configuration.md", "yaml"), ids=lambda text: text[:20])
def test_the_examples_of_the_configuration_are_accepted(text, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    task = {"kind": "digits-mlp"}
    base = BASE | {"task": task, "workers": 32, "servers": 2, "sync": {"kind": "bsp"}}
    for example in filter(None, re.split(r"^(?=[a-z_]+:)", text, flags=re.MULTILINE)):
        given = base | YAML(typ="safe").load(example)
        sync = given["sync"]
        if isinstance(sync, dict) and isinstance(sync_from(sync, example), PeerStrategy):
            del given["servers"]
        if "variants" in given:
            assert variants_from(given, example, tmp_path)
        else:
            assert experiment_from(given, example, tmp_path)
