"""Task char-gpt: a text's windows, a model that sees no future, errors in words."""

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
from outpace.tasks import CharGpt
from outpace.tasks.data.text import read_characters, standard_library
from outpace.tasks.models.char_gpt import (
    Transformer,
    char_gpt,
    next_character_accuracy,
    next_character_loss,
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
    # Spread over the whole of the last tenth: another row would not fit, at this distance.
    assert border + step * len(inputs) + context >= len(text)


def test_rows_share_their_memory():
    characters = read_characters(None, context=64)
    inputs, targets = characters.train_windows(64)
    assert len(inputs) == len(characters.train) - 64
    storage = {tensor.untyped_storage().data_ptr() for tensor in (inputs, targets)}
    assert storage == {characters.train.untyped_storage().data_ptr()}
    assert inputs.dtype == targets.dtype == torch.int64


def test_the_default_text_is_pythons_own_library():
    text = standard_library()
    assert len(text) == 2_000_000
    assert text.isascii()
    assert "import " in text
    # __future__ and _collections_abc come first; what a build generates is left out.
    assert text.startswith('"""Record of phased-in incompatible language changes.')
    assert "build_time_vars" not in text


def test_no_place_sees_what_comes_after_it():
    torch.manual_seed(0)
    model = Transformer(characters=11, context=12, layers=2, heads=2, width=8)
    text = torch.randint(0, 11, (1, 12))
    for place in range(12):
        other = text.clone()
        other[0, place] = (other[0, place] + 1) % 11
        changed = (model(text) - model(other)).abs().amax(dim=-1)[0] > 1e-9
        assert changed.tolist() == [False] * place + [True] * (12 - place)


def test_it_begins_by_knowing_nothing_and_has_the_parameters_of_its_parts():
    torch.manual_seed(0)
    model = Transformer(characters=65, context=16, layers=3, heads=4, width=32)
    output = model(torch.randint(0, 65, (4, 16)))
    loss = next_character_loss(output, torch.randint(0, 65, (4, 16)))
    assert loss.item() == pytest.approx(math.log(65), abs=0.1)
    layer = 4 * 32 * 32 + 4 * 32 + 8 * 32 * 32 + 5 * 32 + 2 * 2 * 32
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == 65 * 32 + 16 * 32 + 3 * layer + 2 * 32 + 32 * 65


def test_every_place_counts_alike():
    output = torch.log(torch.tensor([[[0.9, 0.1], [0.4, 0.6]], [[0.2, 0.8], [0.7, 0.3]]]))
    target = torch.tensor([[0, 1], [0, 1]])
    loss = -sum(math.log(share) for share in (0.9, 0.6, 0.2, 0.3)) / 4
    assert next_character_loss(output, target).item() == pytest.approx(loss, rel=1e-6)
    assert next_character_accuracy(output, target).item() == 0.5


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


def test_a_text_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"task.path: cannot read .*none.txt: No such file"):
        char_gpt(str(tmp_path / "none.txt"), 4, 1, 1, 4)
    (tmp_path / "latin.txt").write_bytes("Straße".encode("latin-1") * 100)
    with pytest.raises(ConfigError, match=r"latin.txt is not UTF-8 text: byte 4 "):
        char_gpt(str(tmp_path / "latin.txt"), 4, 1, 1, 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"heads": 3}, r"width must be divisible by heads \(3\), not 64"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"context": 0}, "context must be at least 1"),
        ({"layers": -1}, "layers must be at least 1"),
        ({"width": 0}, "width must be at least 1"),
    ],
)
def test_impossible_shapes_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        CharGpt(**arguments)
