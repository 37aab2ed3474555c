"""Gradients of parameters, joined into the blocks of the servers."""

from __future__ import annotations

from itertools import accumulate, pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from outpace.blocks.gathering import Gathering


@given(st.data())
def test_the_blocks_make_up_the_vector(data):
    sizes = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any))
    tensors = [torch.randn(size) for size in sizes]
    vector = torch.cat(tensors)
    cuts = data.draw(st.sets(st.integers(0, len(vector)), max_size=3))
    slices = [slice(*ends) for ends in pairwise(sorted({0, len(vector)} | cuts))]
    blocks = Gathering(sizes, slices).blocks(tensors)
    assert torch.equal(torch.cat(blocks), vector)
    ends = list(accumulate(len(block) for block in blocks))
    assert ends == [part.stop for part in slices]
