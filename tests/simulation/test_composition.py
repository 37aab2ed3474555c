"""Runs in virtual time are composed: a body, an exchange and a life, chosen one by one."""

import ast
from pathlib import Path

import pytest
from tests.simulation.faults.ledger import Ran, experiment

import outpace.simulation
from outpace.simulation.life import Life
from outpace.simulation.virtual import VirtualRun

MOST = 3  # ancestors of a class in this package
CRASH = {"schedule": [{"kind": "crash", "at_s": 0.7, "worker": 1}]}


def ancestors(name: str, bases: dict[str, list[str]]) -> set[str]:
    found = set()
    for base in bases.get(name, []):
        if base in bases:
            found |= {base} | ancestors(base, bases)
    return found


def test_no_class_of_the_simulation_has_more_than_three_ancestors():
    bases = {}
    for file in Path(outpace.simulation.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                names = [
                    base.value if isinstance(base, ast.Subscript) else base for base in node.bases
                ]
                bases[node.name] = [base.id for base in names if isinstance(base, ast.Name)]
    assert [name for name in bases if len(ancestors(name, bases)) > MOST] == []


@pytest.mark.parametrize("faults", [None, CRASH], ids=["undisturbed", "failing"])
@pytest.mark.parametrize("strategy", ["ssp", "ssgd"])
def test_whatever_a_run_is_composed_of_it_is_one_class(strategy, faults):
    run = Ran(experiment(strategy, faults)).run
    assert type(run) is VirtualRun
    assert (type(run.life) is Life) == (faults is None)
    assert type(run.exchange).__name__ == ("Peers" if strategy == "ssgd" else "Servers")
