"""What `scripts/counted.py` ends with if another number of workers continues from a checkpoint.

The learning rate is the former number of workers, as the checkpoint has it, and each step is
divided by the present one. So a sample counts 1 before the checkpoint, and after it the former
number by the present one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outpace.engine.resuming import kept_in
from outpace.record.checkpoints import Checkpoint
from outpace.record.checkpoints.trees import read_tree

_SAMPLES, _EPOCHS, _BATCH = 40, 3, 2


def require_shared_out(folder: Path, result: Any) -> None:
    """Assert that no sample is missing, and that all together count as often as they were read.

    The numbers of workers must divide the samples.

    Args:
        folder: of the run. result: of the run, which continued with another number of workers.
    """
    summary = result.summary
    checkpoint = Checkpoint(folder / summary["resumed_from"])
    index, workers = checkpoint.index, len(summary["iterations"])
    before = index.workers
    trees = [read_tree(checkpoint.path / kept_in(worker)) for worker in range(before)]
    places = [tree.get("kept", tree)["data"][0] for tree in trees]
    read = sum(epoch * _SAMPLES // before + samples for epoch, samples in places)
    epoch, samples = min(places)
    left = workers * (_SAMPLES // workers - samples * before // workers)
    after = left + _SAMPLES * (_EPOCHS - epoch - 1)
    assert 0 < after < _SAMPLES * _EPOCHS
    pending = [each for record in index.own for each in record.pending]
    # Gradients that continue with a worker, and those that are in the model of one worker only.
    kept = _BATCH * sum(each.count for each in pending if each.parts)
    lost = sum(each.count for each in pending if not each.parts)
    weight = before / workers
    counts = result.parameters["counts"]
    expected = read - kept - _BATCH * lost + (kept + after) * weight
    assert -counts.sum().item() == pytest.approx(expected)
    assert (summary["updates_lost"], summary["status"]) == (lost, "complete")
    missing = (counts > -min(1.0, weight) + 1e-4).sum().item()
    assert missing <= _BATCH * lost
