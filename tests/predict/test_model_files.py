"""Model files: read back bit for bit, or refused with a reason."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.support.stand_in import StandIn
from tests.support.tables import table

from outpace.errors import ConfigError
from outpace.predict.models import MODELS, FittingAtOnce, Kind, fit, load, save

TIMES = table([[1.0, 2.0], [3.0, 4.0]])
KEY = "outpace.run-time-model"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setitem(MODELS, "stand-in", Kind("tests.support.stand_in", "StandIn"))


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    save(fit("stand-in", [TIMES], seed=5), path)
    return path


def rewritten(path, **changes):
    with safe_open(path, framework="pt") as file:
        said = json.loads(file.metadata()[KEY])
    said.update(changes)
    save_file({"mean": torch.tensor(1.0)}, path, {KEY: json.dumps(said)})
    return path


def test_fits_of_a_run_begin_with_the_one_before(monkeypatch):
    monkeypatch.setitem(MODELS, "stand-in", Kind("tests.support.stand_in", "StandIn"))
    fitting, begun_with = FittingAtOnce("stand-in", 0), []
    for value in (1.0, 3.0, 5.0):
        fitting.start(table([[value], [value]]))
        begun_with.append(fitting.model.begun_with)
    assert begun_with == [None, 1.0, 3.0]


def test_what_is_saved_is_loaded(saved):
    found = load(saved)
    assert isinstance(found, StandIn)
    assert (found.mean.item(), found.seed) == (2.5, 5)
    assert list(saved.parent.iterdir()) == [saved]


def test_the_parameters_of_a_run_are_no_run_time_model(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(
        ConfigError, match=r"model\.safetensors: it has no run-time model.*runtimes fit"
    ):
        load(path)


def test_a_file_of_a_later_version_is_refused(saved):
    with pytest.raises(ConfigError, match=r"it has format 2, .*reads format 1; fit it again"):
        load(rewritten(saved, version=2))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "depp-markov"}, r"Did you mean 'deep-markov'\?"),
        ({"settings": None}, "not subscriptable; fit it again"),
        ({"settings": {}}, r"'seed'; fit it again"),
    ],
)
def test_a_file_that_says_nonsense_is_refused(saved, changes, words):
    with pytest.raises(ConfigError, match=words):
        load(rewritten(saved, **changes))


def test_a_damaged_file_is_named(saved):
    whole = saved.read_bytes()
    for damaged in (whole[:-4], whole[:20], b"", b"no model at all"):
        saved.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"cannot read the run-time model in .*model\.safet"):
            load(saved)
    saved.unlink()
    with pytest.raises(ConfigError, match=r"No such file .*fit it again: outpace runtimes fit"):
        load(saved)
