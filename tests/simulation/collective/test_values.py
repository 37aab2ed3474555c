"""The results of collectives, for three ranks."""

from __future__ import annotations

import pytest
import torch

from outpace.simulation.collective.values import results_of

VALUES = [
    torch.tensor([6.0, 1.0, 2.0]),
    torch.tensor([2.0, 3.0, 4.0]),
    torch.tensor([4.0, 5.0, 3.0]),
]
EACH = [(1, 1, 1)] * 3  # one element for each rank


def results(kind, op="sum", root=0, values=VALUES, parts=EACH):
    found = results_of(kind, op, root, [value.clone() for value in values], parts)
    return [None if value is None else value.tolist() for value in found]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("sum", [12.0, 9.0, 9.0]),
        ("avg", [4.0, 3.0, 3.0]),
        ("product", [48.0, 15.0, 24.0]),
        ("min", [2.0, 1.0, 2.0]),
        ("max", [6.0, 5.0, 4.0]),
    ],
)
def test_values_are_combined(op, expected):
    assert results("all_reduce", op) == [expected] * 3
    assert results("reduce", op, root=1) == [None, expected, None]
    assert results("reduce_scatter", op) == [[number] for number in expected]


def test_a_sum_is_made_in_the_order_of_ranks():
    huge = [torch.tensor([value]) for value in (1.0, 1e8, -1e8)]
    assert results("all_reduce", values=huge)[0] == [0.0]  # 1 is lost in 1e8 + 1 first
    assert results("all_reduce", values=huge[1:] + huge[:1])[0] == [1.0]


def test_values_are_moved():
    assert results("broadcast", root=2) == [[4.0, 5.0, 3.0], [4.0, 5.0, 3.0], None]
    whole = [6.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 3.0]
    assert results("all_gather") == [whole] * 3
    assert results("gather", root=2) == [None, None, whole]
    assert results("scatter", root=1) == [[2.0], [3.0], [4.0]]
    assert results("all_to_all") == [[6.0, 2.0, 4.0], [1.0, 3.0, 5.0], [2.0, 4.0, 3.0]]
    uneven = [(2, 0, 1), (0, 3, 0), (1, 1, 1)]
    assert results("all_to_all", parts=uneven) == [
        [6.0, 1.0, 4.0],
        [2.0, 3.0, 4.0, 5.0],
        [2.0, 3.0],
    ]
    assert results("barrier") == [None] * 3
