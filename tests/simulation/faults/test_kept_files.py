"""The files of scripts at the checkpoint in memory, to which all go back."""

from __future__ import annotations

import pytest
from msgspec import structs

from outpace.record.checkpoints import Taken
from outpace.record.totals import Totals
from outpace.simulation.faults.scripts.saving import KeptFiles


class FullDisk:
    """The checkpoints of a run whose folder has no room for the end of a checkpoint."""

    last, folder = 0, None

    def __init__(self, path):
        self.path = path

    def begin(self, number):
        path = self.path / f"{number}.part"
        path.mkdir()
        return path

    def commit(self, taken, metrics):
        raise OSError("no space left")

    def abandon(self, number, why=""):
        for file in (self.path / f"{number}.part").iterdir():
            file.unlink()


TAKEN = Taken(
    number=1, now=0, updates=0, parts=(), shards=(), totals=Totals(), bounds=(0,), layers=()
)


def saved(files, number):
    """Take a checkpoint of two scripts."""
    folder = files.begin(number)
    for worker in (0, 1):
        (folder / f"worker-{worker}.safetensors").write_text(f"{number}, {worker}")
    return structs.replace(TAKEN, number=number)


def test_a_checkpoint_that_a_full_disk_lacks_counts_in_memory(tmp_path):
    complete = {}
    files = KeptFiles(2, FullDisk(tmp_path), lambda taken, metrics, kept: complete.update(kept))
    with pytest.raises(OSError, match="no space left"):
        files.commit(saved(files, 1), None)
    files.abandon(1)
    assert [complete[worker].read_text() for worker in (0, 1)] == ["1, 0", "1, 1"]
    files.close()
    assert not complete[0].exists()


def test_the_files_of_the_last_checkpoint_stay_while_the_next_one_is_given_up():
    complete = {}
    files = KeptFiles(2, None, lambda taken, metrics, kept: complete.update(kept))
    files.commit(saved(files, 1), None)
    saved(files, 2)
    files.abandon(2)
    assert [complete[worker].read_text() for worker in (0, 1)] == ["1, 0", "1, 1"]
    first = complete[0]
    files.commit(saved(files, 3), None)
    assert complete[0].read_text() == "3, 0"
    assert not first.exists()
    files.close()
