"""Task char-gpt: a text's windows, a model that sees no future, and clear errors."""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.tasks.data.text import read_characters
from outpace.tasks.models.char_gpt import (
    Transformer,
    char_gpt,
)

SHAKESPEARE = Path(os.environ.get("OUTPACE_DATA", "../shared/data")).resolve() / (
    "tinyshakespeare/input.txt"
)
needs_text = pytest.mark.skipif(not SHAKESPEARE.is_file(), reason=f"{SHAKESPEARE} is missing")


def written(folder: Path, text: str) -> str:
    path = folder / "text.txt"
    path.write_text(text, encoding="utf-8")
    return str(path)


@given(text=st.text(alphabet="abcäß字😀", min_size=60, max_size=3000), context=st.integers(1, 5))
def test_rows_are_followed_by_the_next_characters(text, context, tmp_path_factory):
    characters = read_characters(written(tmp_path_factory.mktemp("text"), text), context)
    assert list(characters.distinct) == sorted(set(text))

    def words(row):
        return "".join(characters.distinct[number] for number in row)

    border = len(text) - len(text) // 10
    inputs, targets = characters.train_windows(context)
    assert [words(row) for row in inputs] == [
        text[at : at + context] for at in range(border - context)
    ]
    assert [words(row) for row in targets] == [
        text[at + 1 : at + 1 + context] for at in range(border - context)
    ]
    inputs, targets = characters.test_windows(context)
    assert 1 <= len(inputs) <= 200
    step = int(inputs.stride(0))
    assert step >= context
    assert [(words(a), words(b)) for a, b in zip(inputs, targets, strict=True)] == [
        (text[at : at + context], text[at + 1 : at + 1 + context])
        for at in range(border, border + step * len(inputs), step)
    ]
    # Spread over the whole last tenth: another row would not fit at this distance.
    assert border + step * len(inputs) + context >= len(text)


def test_no_place_sees_what_comes_after_it():
    torch.manual_seed(0)
    model = Transformer(characters=11, context=12, layers=2, heads=2, width=8)
    text = torch.randint(0, 11, (1, 12))
    for place in range(12):
        other = text.clone()
        other[0, place] = (other[0, place] + 1) % 11
        changed = (model(text) - model(other)).abs().amax(dim=-1)[0] > 1e-9
        assert changed.tolist() == [False] * place + [True] * (12 - place)


def configuration(path: str, **task: object) -> dict[str, object]:
    return {
        "task": {"kind": "char-gpt", "path": path, **task},
        "workers": 4,
        "sync": {"kind": "ssp", "staleness": 2},
        "compute": {"kind": "lognormal", "mean_s": 0.1, "cv": 0.3},
        "optimizer": {"lr": 0.3, "momentum": 0.0},
        "batch_size": 8,
        "stop": {"iterations": 200},
    }


@needs_text
def test_it_learns_more_than_how_often_each_character_occurs():
    """A model that knows only the frequencies cannot get below their entropy."""
    text = SHAKESPEARE.read_text(encoding="utf-8")
    shares = [count / len(text) for count in Counter(text).values()]
    entropy = -sum(share * math.log(share) for share in shares)  # nats: 3.3
    plain = configuration(SHAKESPEARE.name, context=32)
    result = simulate(experiment_from(plain, "test", SHAKESPEARE.parent))
    assert result.metrics["test_loss"][-1].as_py() < entropy - 0.3
    assert result.summary["accuracy"] > max(shares) + 0.05


@pytest.mark.parametrize("context", [1, 7])
def test_of_a_short_text_it_is_said_how_long_it_must_be(tmp_path, context):
    needed = 10 * (context + 1)
    path = written(tmp_path, "ab" * (needed // 2))
    task = char_gpt(path, context, 1, 1, 4)
    assert len(task.test[0]) == 1
    path = written(tmp_path, "a" * (needed - 1))
    with pytest.raises(ConfigError, match=f"needs {needed} characters .* has {needed - 1}"):
        char_gpt(path, context, 1, 1, 4)
