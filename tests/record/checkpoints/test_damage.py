"""Damaged checkpoints are never loaded and cause no traceback: the previous one is used."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.checkpoints import METRICS, same, save, shard_state, shard_states

from outpace.errors import ConfigError
from outpace.record.checkpoints import Checkpoint, Checkpoints, Damaged

NUMBERS = (1, 2, 3)
FILES = ("index.json", "metrics.parquet", "server-0.safetensors", "server-1.safetensors")
places = st.floats(0, 1, exclude_max=True)
damages = st.one_of(
    st.tuples(st.just("flip"), st.sampled_from(FILES), places, st.integers(1, 255)),
    st.tuples(st.just("cut"), st.sampled_from(FILES), places),
    st.tuples(st.just("remove"), st.sampled_from(FILES)),
    st.tuples(st.just("swap"), st.sampled_from(FILES), st.sampled_from(NUMBERS)),
    st.tuples(st.just("of another run"), st.sampled_from(FILES)),
    st.tuples(st.just("swap all"), st.sampled_from(NUMBERS)),
)


def states(number, run=0):
    """Return two states whose content identifies their run and checkpoint."""
    values = [torch.full((3,), 100.0 * run + number + shard / 2) for shard in (0, 1)]
    return [shard_state(shard=shard, parameters=value) for shard, value in enumerate(values)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of two runs with three checkpoints each."""
    folder = tmp_path_factory.mktemp("runs")
    for run in (0, 1):
        for number in NUMBERS:
            save(Checkpoints(folder / str(run)), number, states(number, run))
    return folder


def contents(run: Path, number: int) -> dict[str, bytes]:
    path = Checkpoints(run).path(number)
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def spoil(run: Path, other: Path, number: int, damage) -> None:
    what, *more = damage
    path = Checkpoints(run).path(number)
    if what == "swap all":
        mine, theirs = contents(run, number), contents(run, more[0])
        for where, files in ((more[0], mine), (number, theirs)):
            shutil.rmtree(Checkpoints(run).path(where))
            Checkpoints(run).path(where).mkdir()
            for name, data in files.items():
                (Checkpoints(run).path(where) / name).write_bytes(data)
        return
    file = path / more[0]
    if not file.exists():
        return
    data = bytearray(file.read_bytes())
    match what:
        case "flip" if data:
            data[int(more[1] * len(data))] ^= more[2]
            file.write_bytes(data)
        case "cut":
            file.write_bytes(data[: int(more[1] * len(data))])
        case "remove":
            file.unlink()
        case "swap":
            theirs = Checkpoints(run).path(more[1]) / more[0]
            if theirs.exists():
                file.write_bytes(theirs.read_bytes())
                theirs.write_bytes(data)
        case "of another run":
            shutil.copy(Checkpoints(other).path(number) / more[0], file)


def is_whole(run: Path, number: int) -> bool:
    """True if this checkpoint can be opened and its files agree with its index."""
    try:
        Checkpoint(Checkpoints(run).path(number)).check()
    except Damaged:
        return False
    return True


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(NUMBERS), damages), max_size=4))
def test_what_is_damaged_is_never_used_and_the_one_before_is_with_a_notice(runs, done):
    with TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        shutil.copytree(runs / "0", run)
        whole = {number: contents(run, number) for number in NUMBERS}
        for number, damage in done:
            spoil(run, runs / "1", number, damage)
        untouched = [number for number in NUMBERS if contents(run, number) == whole[number]]
        said: list[str] = []
        if not untouched and not any(map(is_whole, [run] * 3, NUMBERS)):
            with pytest.raises(ConfigError, match="no checkpoint can be used"):
                Checkpoints(run).newest(said.append)
            return
        found = Checkpoints(run).newest(said.append)
        assert found is not None
        number = int(found.path.name)
        assert number >= max(untouched, default=1)
        read = shard_states(found, found.index.slices, 2)
        assert all(map(same, read, states(number)))
        assert found.metrics() == METRICS
        passed_over = [other for other in NUMBERS if other > number]
        assert len(said) == len(passed_over)
        for other, text in zip(reversed(passed_over), said, strict=True):
            assert f"{other:06}" in text
            assert f"checkpoints/{number:06} is used instead" in text
