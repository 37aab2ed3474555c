"""When work is done that stands still while one of its nodes is cut off."""

import pytest

from outpace.kernel import Kernel
from outpace.simulation.network.obstacles import Obstacles


@pytest.mark.parametrize(
    ("begin", "duration", "ends"),
    [
        (0, 10, 10),  # before any
        (5, 10, 40),  # 5, then a partition from 10 to 35 by two nodes that overlap, then 5
        (12, 0, 35),  # it begins within one
        (12, 70, 105),  # up to the next one
        (12, 71, 121),  # 1 beyond it
        (130, 3, 133),
    ],
)
def test_work_stands_still_while_one_of_its_nodes_is_cut_off(begin, duration, ends):
    kernel = Kernel()
    partitions = Obstacles(kernel, print)
    for node, start, end in (("a", 10, 20), ("b", 15, 35), ("a", 105, 120), ("c", 0, 1000)):
        kernel.set_time(start)
        partitions.partition(node, end)
    assert partitions.work_ends(("a", "b"), begin, duration) == ends
    assert partitions.until("a") == 120
    kernel.set_time(30)
    partitions.end_partition("b")
    assert partitions.work_ends(("b",), 15, 1) == 31
