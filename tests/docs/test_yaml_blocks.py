"""Every YAML block of the pages is a configuration, or parts of one."""

from __future__ import annotations

import csv
import re

import pytest
from tests.docs.blocks import Block, cases

from outpace.config.reading import experiment_from, sync_from
from outpace.experiment.comparison import variants_from
from outpace.support.yaml_files import read_yaml
from outpace.sync import PeerStrategy

# Keys that blocks leave out, with the sizes that the blocks assume.
BASE = {
    "task": {"kind": "digits-mlp"},
    "workers": 32,
    "servers": 2,
    "compute": {"kind": "lognormal", "mean_s": 1.0, "cv": 0.3},
    "sync": {"kind": "bsp"},
    "stop": {"iterations": 5},
}
MINE = """
from outpace.sync import Bsp

def may_answer(pull, view, patience): ...
def may_advance(view): ...
def small(view, below): ...
def often(view): ...

def MyStrategy(quorum):
    return Bsp()

def Quorum(quorum):
    return Bsp()

def EveryNth(every):
    return Bsp()
"""


def examples(text: str) -> list[str]:
    """Split a block where a key is repeated: it then shows alternatives."""
    found: list[list[str]] = [[]]
    seen: set[str] = set()
    for part in re.split(r"^(?=[a-z_]+:)", text, flags=re.MULTILINE):
        key = part.partition(":")[0]
        if key in seen:
            found.append([])
            seen = set()
        seen.add(key)
        found[-1].append(part)
    return ["".join(parts) for parts in found]


@pytest.mark.parametrize("block", cases("yaml"))
def test_every_yaml_block_is_a_configuration(block: Block, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "my_task.py").write_text("def make_task(width=64): ...")
    with (tmp_path / "rtt.csv").open("w", newline="") as file:
        csv.writer(file).writerows([[0.0 if a == b else 1.0 for a in range(32)] for b in range(32)])
    with (tmp_path / "my_job.csv").open("w", newline="") as file:
        rows = ((worker, 0, 1.0) for worker in range(32))
        csv.writer(file).writerows([("worker", "iteration", "seconds"), *rows])
    for text in examples(block.text):
        (tmp_path / "block.yaml").write_text(text)
        given = BASE | read_yaml(tmp_path / "block.yaml")
        sync = given["sync"]
        if isinstance(sync, dict) and isinstance(sync_from(sync, text), PeerStrategy):
            del given["servers"]
        if "variants" in given:
            assert variants_from(given, text, tmp_path)
        else:
            assert experiment_from(given, text, tmp_path)
