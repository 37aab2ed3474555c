"""The recipes for Hugging Face and Lightning train, alone and with several workers."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.docs.blocks import blocks
from tests.support.command import outpace
from tests.support.gloo import run_with_gloo
from tests.support.paths import EXAMPLES, ROOT


def example(name: str, library: str) -> object:
    """Return the parameter of a test for an example that needs a library."""
    is_missing = pytest.mark.skipif(
        find_spec(library) is None,
        reason=f"{library} is not installed: pip install 'outpace[recipes]' (make recipes)",
    )
    return pytest.param(name, marks=[pytest.mark.slow, is_missing], id=library)


RECIPES = [
    example("train_huggingface.py", "transformers"),
    example("train_lightning.py", "pytorch_lightning"),
]
# Scripts that do not use Outpace: these libraries wrap the model in DDP.
UNCHANGED = [
    example("ddp_accelerate.py", "accelerate"),
    example("ddp_lightning.py", "pytorch_lightning"),
]


def arguments(name: str, folder: Path) -> list[str]:
    return ["--epochs", "1", *(["--out", str(folder)] if "huggingface" in name else [])]


def losses(output: str) -> tuple[float, float]:
    """Return the first and the last loss that the script prints."""
    (found,) = re.findall(r"loss: first ([\d.]+), last ([\d.]+)", output)
    return float(found[0]), float(found[1])


@pytest.mark.parametrize("name", RECIPES)
def test_the_workers_of_a_recipe_train_on_data_of_their_own(tmp_path, capfd, name):
    out = tmp_path / "run"
    options = ("--workers", "2", "--out", str(out), "sync.kind=ssgd")
    script = [str(EXAMPLES / name), *options, "--", *arguments(name, tmp_path / "model")]
    assert outpace("run", *script) == 0
    first, last = losses(capfd.readouterr().out)
    assert last < 0.8 * first
    summary = json.loads((out / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert summary["warnings"] == []  # not that the workers computed the same gradient
    one, other = summary["iterations"]
    assert one == other > 20
    assert summary["train_loss"] == pytest.approx(last, abs=5e-4)  # that worker 0 logged


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("name", UNCHANGED)
def test_a_script_that_wraps_in_ddp_prints_what_it_does_with_gloo(name, tmp_path, capfd):
    run_with_gloo(EXAMPLES / name, [], 2, output=tmp_path / "output.txt")

    def numbers(output: str) -> list[str]:
        return re.findall(r"(?:loss|accuracy) [\d./]+", output)

    expected = numbers((tmp_path / "output.txt").read_text())
    assert len(expected) > 8
    law = "compute={kind: constant, mean_s: 0.01}"
    capfd.readouterr()
    for command in ("run", "simulate"):
        out = ("--out", str(tmp_path / command))
        assert (
            outpace(command, str(EXAMPLES / name), "--workers", "2", law, "sync.kind=ssgd", *out)
            == 0
        )
        found = numbers(capfd.readouterr().out)
        assert found == expected
    out = ("--out", str(tmp_path / "hpsgd"))
    assert outpace("run", str(EXAMPLES / name), "--workers", "2", "sync.kind=hpsgd", *out) == 0


def test_the_code_on_the_page_of_the_recipes_is_that_of_the_examples():
    def code(text: str) -> str:
        return "\n".join(line.strip() for line in text.splitlines() if line.strip())

    examples = "".join(code(path.read_text()) for path in EXAMPLES.glob("train_*.py"))
    found = blocks(ROOT / "docs" / "recipes.md", "python")
    assert len(found) == 2
    assert all(code(block.text) in examples for block in found)
