"""Blocks in bfloat16, with bits written by hand."""

from __future__ import annotations

import pytest
import torch

from outpace.blocks.block import Deferred, Phantom, Pieces, value_of, whole
from outpace.blocks.narrowing import Full, narrowed, widened

# In [1, 2) bfloat16 has the numbers 1 + k/128. Ties go to even k.
GIVEN = [1.0, 1 + 1 / 256, 1 + 3 / 256, 1 + 1 / 256 + 2**-20, -1 - 3 / 512, 3e38, 1e-40, -0.0]
ROUNDED = [1.0, 1.0, 1 + 2 / 128, 1 + 1 / 128, -1 - 1 / 128, 226 * 2.0**120, 2.0**-133, -0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("is_cut", [False, True])
def test_numbers_are_rounded_to_the_nearest_and_come_back_in_their_precision(dtype, is_cut):
    tensor = torch.tensor(GIVEN, dtype=dtype)
    block = Pieces(list(tensor.clone().split(3))) if is_cut else tensor.clone()
    sent = narrowed(block)
    assert (sent.dtype, sent.nbytes) == (torch.bfloat16, 2 * len(GIVEN))
    came = widened(Pieces(list(sent.split(5))) if is_cut else sent, dtype)
    assert came.dtype is dtype
    assert whole(came).tolist() == ROUNDED
    assert whole(block).tolist() == tensor.tolist()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_is_as_short_already_stays_as_it_is(dtype):
    block = torch.ones(3, dtype=dtype)
    assert narrowed(block) is block
    assert widened(block, dtype) is block


def test_a_deferred_block_is_computed_when_it_is_read():
    read = []

    def compute() -> torch.Tensor:
        read.append(1)
        return torch.tensor(GIVEN)

    block = narrowed(Deferred(len(GIVEN), torch.float32, compute))
    assert (block.dtype, block.nbytes, read) == (torch.bfloat16, 2 * len(GIVEN), [])
    assert value_of(block).tolist() == ROUNDED
    assert read == [1]


def test_a_phantom_has_half_the_bytes_and_gets_its_size_back():
    assert narrowed(Phantom(40)) == Phantom(20)
    assert Full.of(Phantom(40)).restored(Phantom(20)) == Phantom(40)


def test_what_is_known_to_be_finite_stays_known():
    pieces = Pieces([torch.ones(2, dtype=torch.bfloat16)] * 2, True, is_shared=True)
    came = widened(pieces, torch.float32)
    assert came.finite is True
    assert not came.is_shared  # it has separate memory
