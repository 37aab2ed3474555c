"""Every command in the blocks of the pages has options and arguments that its program knows."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest
import typer
from tests.docs.blocks import Block, cases
from tests.support.paths import ROOT

from outpace.cli import app
from outpace.config.experiment import Experiment

# Programs of others, whose arguments are not checked.
OTHERS = {"cd", "export", "pip", "python", "python3", "ray", "srun", "torchrun", "uv"}
# What a configuration or an override may say: keys of an experiment, and what commands resolve.
KEYS = {entry.name for entry in dataclasses.fields(Experiment)} | {
    "args",
    "draw_cluster",
    "variants",
}
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def commands(text: str) -> list[list[str]]:
    """Split a block into commands and their words, without comments and variables before them."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words:
            found.append(words)
    return found


def parse(words: list[str]) -> None:
    """Read the words as the command line does.

    Raises an error for a command, an option or a key of the configuration that is unknown.
    """
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("outpace", [*words])
    own = words[: words.index("--")] if "--" in words else words
    for key in re.findall(r"^(\w+)[\w.]*=", "\n".join(own), flags=re.MULTILINE):
        assert key in KEYS, key


@pytest.mark.parametrize("block", cases("bash"))
def test_every_command_is_accepted(block: Block):
    for program, *words in commands(block.text):
        if program == "outpace":
            parse(words)
        elif program == "make":
            assert set(words) <= TARGETS, words
        else:
            assert program in OTHERS, program
