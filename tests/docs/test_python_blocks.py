"""Every Python block of the pages runs: the blocks of a page in order, in one namespace."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.docs.blocks import Block, blocks, name, pages
from tests.support.paths import EXAMPLES

import outpace

FILE = re.compile(r"# (\w+\.py)\n")  # first line of a block that is a file of the user
EXPERIMENT = """
task: {kind: timing, parameters: 100}
workers: 4
servers: 2
compute: {kind: lognormal, mean_s: 1.0, cv: 0.3}
sync: {kind: bsp}
stop: {iterations: 5}
"""


def a_script() -> dict[str, Any]:
    """Return the part of a training script before the lines that a page shows."""
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {
        "torch": torch,
        "outpace": outpace,
        "DataLoader": torch.utils.data.DataLoader,
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
        "data": torch.utils.data.TensorDataset(torch.ones(64, 4), torch.zeros(64).long()),
        "epochs": 1,
        "loss_function": torch.nn.functional.cross_entropy,
        "losses": [],
    }


def a_loop() -> dict[str, Any]:
    """Return the same part of a script, with its loop over the data."""
    script = a_script()
    return {
        **script,
        "loader": script["DataLoader"](script["data"], batch_size=32),
        "evaluate": lambda model: 0.5,
    }


def short_examples(folder: Path) -> None:
    """Return the examples that the blocks name, shortened."""
    folder.mkdir()
    (folder / "my_task.py").write_text((EXAMPLES / "my_task.py").read_text())
    text = (EXAMPLES / "my_task.yaml").read_text()
    assert "virtual_time_s: 10," in text
    short = text.replace("virtual_time_s: 10,", "virtual_time_s: 0.3,")
    (folder / "my_task.yaml").write_text(short)


def trainer_and_server(names: dict[str, Any]) -> None:
    """Test the last class of simulator.md: it computes a gradient and waits for the answer."""
    model = torch.nn.Linear(4, 2)
    batches = [(torch.ones(3, 4), torch.zeros(3).long())]

    class Server(outpace.Worker):
        async def run(self) -> list[torch.Size]:
            gradient = await self.recv()
            self.send("trainer", [])
            return [part.shape for part in gradient]

    simulator = outpace.Simulator()
    simulator.add_worker("server", Server)
    simulator.add_worker("trainer", names["Trainer"], model, batches)
    assert simulator.start() == pytest.approx(0.1)
    assert simulator.results["server"] == [(2, 4), (2,)]


BEFORE: dict[str, Callable[[], dict[str, Any]]] = {
    "README.md": a_script,
    "real.md": a_script,
    "simulator.md": lambda: {"torch": torch},
    "tracking.md": a_loop,
    "your-script.md": a_loop,
}
AFTER: dict[str, Callable[[dict[str, Any]], None]] = {"simulator.md": trainer_and_server}


@pytest.mark.parametrize("found", pages("python"))
def test_the_python_blocks_of_a_page_run(found: list[Block], tmp_path, monkeypatch, capsys):
    page = found[0].page
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    short_examples(tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    names = BEFORE.get(page.name, dict)()
    shown = iter([block.text for block in blocks(page, "text")])
    for block in found:
        file = FILE.match(block.text)
        # A file of the user is imported alone, so it has its imports.
        inside = {"__name__": file[1].removesuffix(".py")} if file else names
        exec(compile(block.text, name(block), "exec", dont_inherit=True), inside)
        printed = capsys.readouterr().out
        if printed:
            assert_shown(printed, next(shown))
    AFTER.get(page.name, lambda names: None)(names)


def assert_shown(printed: str, shown: str) -> None:
    """Require that the output of a block is in the next block of text; `...`: any further lines."""
    expected = [line.rstrip() for line in shown.splitlines()]
    lines = [line.rstrip() for line in printed.splitlines()]
    if expected[-1].strip() == "...":
        expected.pop()
        assert len(lines) > len(expected)
        lines = lines[: len(expected)]
    assert lines == expected
