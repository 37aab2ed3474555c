"""Runs in virtual time are composed: a body, an exchange and a life, chosen one by one."""

import ast
from pathlib import Path

import outpace.simulation

MOST = 3  # ancestors of a class in this package


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
