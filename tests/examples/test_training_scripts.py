"""The scripts of the examples train as workers in virtual time."""

from __future__ import annotations

import pytest
from tests.support.paths import EXAMPLES

import outpace

SCRIPTS = {
    "train_mnist.py": ["--epochs", "1", "--batch-size", "360", "--save-model"],
    "train_transformer.py": ["--steps", "10", "--accumulate", "1"],
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_the_examples_trains_in_virtual_time(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = SCRIPTS[name]
    result = outpace.simulate(
        {
            "task": {"kind": "script", "path": str(EXAMPLES / name), "arguments": arguments},
            "workers": 2,
            "compute": {"kind": "constant", "mean_s": 1.0},
            "sync": {"kind": "bsp"},
        }
    )
    steps = {"train_mnist.py": 2, "train_transformer.py": 10}[name]
    assert result.summary["iterations"] == [steps, steps]
    assert result.summary["virtual_time_s"] == steps
    assert result.summary["train_loss"] < 5.0  # log(10), and log of the number of characters
    assert result.summary["warnings"] == []  # not that the workers computed the same gradient
    assert (tmp_path / "mnist_cnn.pt").exists() == (name == "train_mnist.py")
