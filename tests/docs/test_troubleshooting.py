"""The messages on the troubleshooting page occur in the program."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from tests.docs.blocks import Block, blocks, name
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
GAP = "…"  # names and numbers in a message


@pytest.fixture(scope="module")
def messages() -> str:
    sources = (ROOT / "src" / "outpace").rglob("*.py")
    return "\n".join(text for path in sources for text in texts(ast.parse(path.read_text())))


def texts(tree: ast.AST) -> Iterator[str]:
    """Return the strings in a program, with a gap for each value that is formatted into them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (getattr(part, "value", GAP) for part in node.values)
            yield "".join(part if isinstance(part, str) else GAP for part in parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("block", [pytest.param(b, id=name(b)) for b in blocks(PAGE, "text")])
def test_every_message_is_one_of_the_program(block: Block, messages):
    assert block.text.strip().strip(GAP) in messages
