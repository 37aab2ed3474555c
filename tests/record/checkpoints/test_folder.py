"""The checkpoints of a run are complete or absent, and the newest ones are kept."""

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from tests.support.checkpoints import (
    METRICS,
    rewrite_index,
    same,
    save,
    shard_state,
    shard_states,
)

from outpace.errors import ConfigError
from outpace.record.checkpoints import Checkpoints, RunLock, folder, tensors, write_shard


def states(number):
    """Return two states whose content identifies their checkpoint."""
    return [shard_state(shard=m, parameters=torch.full((3,), number + m / 2)) for m in (0, 1)]


def require_newest(run, number):
    """Require that this is the newest checkpoint of the run, and whole."""
    said = []
    found = Checkpoints(run).newest(said.append)
    assert said == []
    assert found.index.number == number
    read = shard_states(found, found.index.slices, 2)
    assert all(map(same, read, states(number)))
    assert found.metrics() == METRICS
    assert found.index.totals.iterations == {0: 5, 1: 7}


class Killed(BaseException):
    """Represents the end of the process."""


class Dying:
    """Counts operations on files and raises Killed at one of them, before or in the middle."""

    def __init__(self, patch, last):
        self.count, self.last = 0, last
        for target, name in (
            (tensors.os, "fsync"),
            (tensors, "save_file"),
            (folder.pq, "write_table"),
            (Path, "rename"),
            (Path, "mkdir"),
            (folder.shutil, "rmtree"),
        ):
            patch.setattr(target, name, self.counted(getattr(target, name), name))

    def counted(self, function, name):
        def operation(*arguments, **others):
            self.count += 1
            if self.count == self.last:
                if name in ("save_file", "write_table"):
                    Path(arguments[1]).write_bytes(b"\x40torn")
                if name == "rmtree":  # half of it is done
                    next(Path(arguments[0]).iterdir()).unlink()
                raise Killed
            return function(*arguments, **others)

        return operation


def test_a_process_killed_at_any_operation_leaves_whole_checkpoints(tmp_path, monkeypatch):
    last, done = 0, False
    while not done:
        last += 1
        run = tmp_path / str(last)
        save(Checkpoints(run, keep=1), 1, states(1))
        with monkeypatch.context() as patch:
            Dying(patch, last)
            try:
                save(Checkpoints(run, keep=1), 2, states(2))
                done = True
            except Killed:
                pass
        renamed = (run / "checkpoints" / "000002").exists()
        require_newest(run, 2 if renamed else 1)
        Checkpoints(run).clean()
        require_newest(run, 2 if renamed else 1)
        assert not list(run.glob("checkpoints/*.part"))
    assert last > 10  # begin, two shards, metrics, index, folders, renames, removal
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["000002"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"bounds": (0, 3)}, "not as many slices as servers"),
        ({"bounds": (0, 6, 3)}, "slices are not in order"),
        ({"bounds": (0, 2, 6)}, "server-0.safetensors is damaged, or of another model: it has 3 p"),
        ({"parts": [{"file": "../model", "bytes": 1, "crc32": 2}]}, "a file outside of its folder"),
    ],
)
def test_an_index_that_contradicts_itself_is_refused(change, problem, tmp_path):
    save(Checkpoints(tmp_path), 1, states(1))
    rewrite_index(tmp_path / "checkpoints" / "000001", **change)
    with pytest.raises(ConfigError, match=problem):
        Checkpoints(tmp_path).newest()


@pytest.mark.parametrize("version", [1, 99])
def test_a_checkpoint_of_another_format_is_refused_in_one_line(version, tmp_path):
    save(Checkpoints(tmp_path), 1, states(1))
    rewrite_index(tmp_path / "checkpoints" / "000001", version=version)
    with pytest.raises(ConfigError, match=f"has format {version} of Outpace") as refused:
        Checkpoints(tmp_path).newest()
    assert len(str(refused.value).splitlines()) == 1


def test_a_full_disk_leaves_the_checkpoints_before(tmp_path, monkeypatch):
    save(Checkpoints(tmp_path), 1, states(1))

    def full(*_):
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(tensors, "save_file", full)
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(OSError, match=r"server-0.safetensors: No space left on device"):
        write_shard(checkpoints.begin(2), states(2)[0])
    checkpoints.abandon(2)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000001"]
    require_newest(tmp_path, 1)


@pytest.mark.parametrize(("keep", "left"), [(1, [5]), (3, [3, 4, 5])])
def test_the_newest_stay(keep, left, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep)
    for number in range(1, 6):
        save(checkpoints, number, states(number))
    assert checkpoints.numbers() == left


def test_a_run_that_goes_on_from_a_checkpoint_removes_those_after_it(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for number in (1, 2, 3):
        save(checkpoints, number, states(number))
    checkpoints.begin(4)
    checkpoints.clean(after=1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000001"]


def test_the_lock_refuses_a_second_holder_and_names_the_first(tmp_path):
    with RunLock(tmp_path):
        with pytest.raises(ConfigError, match=r"this run is running \(process \d+ on .* since "):
            RunLock(tmp_path)
        with pytest.raises(ConfigError, match="stop it first"):
            RunLock(tmp_path)
    RunLock(tmp_path).release()
