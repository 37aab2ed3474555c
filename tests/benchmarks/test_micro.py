"""Every part of `python -m benchmarks.micro` runs, and writes what it measured."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from benchmarks.micro.__main__ import PARTS, main, write
from benchmarks.rows import row
from tests.support.paths import ROOT

KEYS = ["name", "median", "low", "high", "goal", "met"]


def assert_measured(rows: list[dict[str, object]]) -> None:
    for each in rows:
        assert list(each) == KEYS
        assert each["low"] <= each["median"] <= each["high"]
        assert (each["met"] is None) == (each["goal"] is None)


@pytest.mark.slow
@pytest.mark.parametrize("part", sorted(set(PARTS) - {"real", "kernel"}))
def test_every_part_measures_something(part, tmp_path):
    path = tmp_path / "found.json"
    assert main([part, "--quick", "--json", str(path)]) in (0, 1)
    rows = json.loads(path.read_text("utf-8"))
    assert rows
    assert_measured(rows)


@pytest.mark.slow
def test_real_processes_and_the_kernel_are_compared_with_their_peers(tmp_path):
    path = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks.micro", "real", "kernel", "--quick"]
    done = subprocess.run([*command, "--json", str(path)], cwd=ROOT, stdout=subprocess.DEVNULL)
    assert done.returncode in (0, 1)
    rows = json.loads(path.read_text("utf-8"))
    assert len(rows) >= 8
    assert_measured(rows)


def test_a_missed_goal_is_written_and_so_is_a_number_without_a_goal(tmp_path):
    path = tmp_path / "found.json"
    measured = [
        row("slow", [1.5, 2.0, 3.0], unit="x", goal=1.0),
        row("fast", [1.5, 2.0, 3.0], unit="x", goal=1.0, at_least=True),
        row("shown", [1.5, 2.0, 3.0], unit="x"),
    ]
    write(measured, path)
    rows = json.loads(path.read_text("utf-8"))
    assert [(each["name"], each["met"]) for each in rows] == [
        ("slow", False),
        ("fast", True),
        ("shown", None),
    ]
    assert_measured(rows)
