"""The state of a shard is read from its file as it was written."""

from threading import Event

import pytest
import torch
from tests.support.checkpoints import same, shard_state

from outpace.blocks.block import Phantom, Pieces, StepSettings
from outpace.errors import ConfigError
from outpace.record.checkpoints.shards import read_shard, write_shard
from outpace.sync.checkpoint.state import PendingIteration
from outpace.sync.policy import Scale

PIECES = Pieces([torch.tensor([1.0, 2.0]), torch.tensor([3.0])])
PENDING = PendingIteration(
    iteration=4,
    scale=Scale.LINEAR,
    workers=3,
    count=2,
    parts=((5, PIECES), (2, Pieces([torch.tensor([7.0, 8.0]), torch.tensor([9.0])]))),
    pushes=((1, 9), (0, 10)),
    settings=((1, StepSettings([{"lr": 0.5, "betas": [0.9, 0.99]}], [2])),),
)
STATES = {
    "plain": shard_state(),
    "half": shard_state(parameters=torch.tensor([0.1, -2.0], dtype=torch.bfloat16)),
    "pieces": shard_state(parameters=PIECES, pending=(PENDING,)),
    "phantom": shard_state(parameters=Phantom(12)),
    "momentum": shard_state(optimizer={0: {"momentum_buffer": torch.tensor([0.1, 0.2, 0.3])}}),
    "script": shard_state(
        optimizer={
            3: {"step": torch.tensor(7.0), "exp_avg": torch.tensor([1.5])},
            5: {"count": 3, "is_warm": True, "rate": float("inf"), "mode": "min", "buffer": None},
        }
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_comes_back_as_it_was(name, tmp_path):
    record, part = write_shard(tmp_path, STATES[name])
    assert part.bytes == (tmp_path / "server-1.safetensors").stat().st_size
    assert same(read_shard(tmp_path, record), STATES[name])


def test_pending_pieces_come_back_cut_alike(tmp_path):
    record, _ = write_shard(tmp_path, STATES["pieces"])
    ((_, value), _) = read_shard(tmp_path, record).pending[0].parts
    assert isinstance(value, Pieces)
    assert [part.tolist() for part in value.parts] == [[1.0, 2.0], [3.0]]


def test_a_state_that_cannot_be_kept_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"the optimizer's state.*'history'\] is a .*Event"):
        write_shard(tmp_path, shard_state(optimizer={0: {"history": Event()}}))
    assert list(tmp_path.iterdir()) == []
