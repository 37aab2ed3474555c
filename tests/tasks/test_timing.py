"""Task timing: the sizes of messages, from a number or a list."""

from __future__ import annotations

import pytest

from outpace.blocks.slicing import even_slices
from outpace.tasks import Timing


def layers_of(task: Timing) -> tuple[int, ...]:
    return task.workload(workers=1, batch_size=1, seed=0).layers


@pytest.mark.parametrize(
    ("task", "layers"),
    [
        (Timing(), (1_000_000,)),
        (Timing(parameters=7), (7,)),
        (Timing(layers=(3, 1, 2)), (3, 1, 2)),
    ],
)
def test_layers_are_kept_and_the_size_is_their_sum(task, layers):
    workload = task.workload(workers=1, batch_size=1, seed=0)
    assert workload.layers == layers
    assert workload.size == sum(layers)
    assert [block.nbytes for block in workload.initial_parameters()] == [4 * sum(layers)]
    workload.cut(even_slices(workload.size, 2))
    assert sum(block.nbytes for block in workload.initial_parameters()) == 4 * sum(layers)


def test_a_large_model_is_not_allocated():
    assert layers_of(Timing(layers=(10**14, 10**14))) == (10**14, 10**14)
