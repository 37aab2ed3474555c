"""Values sent in bfloat16 are rounded once when they are sent and once when they are returned."""

from __future__ import annotations

import dataclasses
import struct

import pytest
import torch

from outpace.blocks.sums import tree_sum
from outpace.cluster.network import NetworkLaw
from outpace.sync import DiLoCo, Hpsgd, LocalSgd, Ssgd
from outpace.testing.peer_runs import PeerRun


def by_hand(number: float) -> float:
    """Round to the upper 16 bits of a float32, to nearest, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    bits += 0x7FFF + (bits >> 16 & 1)
    (result,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))
    return result


def uneven(worker, iteration):
    """Return a gradient that bfloat16 cannot represent, different for each worker and iteration."""
    source = torch.Generator().manual_seed(100 * iteration + worker)
    return torch.rand(3, dtype=torch.float64, generator=source)


def gathered(values):
    """Return the result of an all-reduce in bfloat16, by hand."""
    total = tree_sum(torch.tensor([by_hand(x) for x in value]).double() for value in values)
    return torch.tensor([by_hand(x) for x in total]).double()


def each(iteration):
    return [uneven(worker, iteration) for worker in range(3)]


FIRST, SECOND = each(0), each(1)
BOTH = [-(one + other) for one, other in zip(FIRST, SECOND, strict=True)]


@pytest.mark.parametrize(
    ("sync", "expected"),
    [
        (Ssgd(wire="bf16"), -(gathered(FIRST) + gathered(SECOND)) / 3),
        (Hpsgd(wire="bf16"), -(gathered(FIRST) + gathered(SECOND)) / 3),
        (LocalSgd(2, wire="bf16"), gathered(BOTH) / 3),
        (DiLoCo(2, 1.0, 0.0, wire="bf16"), -gathered([-each for each in BOTH]) / 3),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_each_value_and_the_sum_are_rounded_once(sync, expected):
    table = [[0.01] * 2] * 3
    run = PeerRun(sync, table, lr=1.0, gradient_of=uneven)
    torch.testing.assert_close(run.parameters, expected, rtol=1e-14, atol=0)
    full = PeerRun(dataclasses.replace(sync, wire="full"), table, lr=1.0, gradient_of=uneven)
    assert not torch.allclose(run.parameters, full.parameters, rtol=1e-4)
    torch.testing.assert_close(run.parameters, full.parameters, rtol=2**-7, atol=0)


@pytest.mark.parametrize("contention", ["serialised", "fair"])
@pytest.mark.parametrize("sync", [Ssgd(), LocalSgd(2), Hpsgd(), DiLoCo(2)], ids=lambda s: s.kind)
def test_what_takes_two_bytes_takes_as_long_as_these(sync, contention):
    # Rings of two workers with two float64: chunks of 8 bytes, or of 2.
    law = NetworkLaw(0.0, 1000.0, contention)
    for wire, takes in (("full", 2 * 8), ("bf16", 2 * 2)):
        run = PeerRun(dataclasses.replace(sync, wire=wire), [[0.1] * 2] * 2, network=law)
        rows = run.rows("all-reduce")
        assert rows
        assert {row["end_ns"] - row["computed_ns"] for row in rows} == {takes * 1_000_000}
