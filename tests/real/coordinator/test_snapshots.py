"""Parameters that are asked for without servers: of which time they are."""

from __future__ import annotations

import torch

from outpace.kernel import Kernel
from outpace.real.coordinator.snapshots import PeerSnapshots
from outpace.real.net.messages import Snapshot

BLOCK = torch.zeros(2)


def snapshot(request: int, worker: int, version: int, now: int) -> Snapshot:
    return Snapshot(
        request=request,
        shard=worker,
        version=version,
        now=now,
        applied=version,
        block=BLOCK,
    )


def test_the_final_parameters_are_not_of_an_earlier_time_than_the_last_evaluated_ones():
    """A worker may answer a request after the end of its training, of which time its last are."""
    evaluated = []
    found = PeerSnapshots(
        ["worker-0", "worker-1"],
        False,
        lambda *_: None,
        lambda blocks, at, then: evaluated.append(at.now),
    )
    found.schedule(Kernel(), None, 7)
    request = 1  # for version 7
    found.add(snapshot(request, 0, 7, 805))
    found.add(snapshot(0, 0, 7, 800))
    found.add(snapshot(0, 1, 7, 802))
    found.ask_for_last()
    assert found.final is not None
    assert evaluated == [805]
    assert found.final[1].now == 805
