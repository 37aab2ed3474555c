"""The fence hears one generation of a sender, and each of its messages once, in order."""

import pytest

from outpace.sync.membership.fence import Fence


@pytest.mark.parametrize(
    ("generation", "serial", "verdict"),
    [
        (2, 3, "due"),
        (2, 2, "not due"),
        (2, 4, "not due"),
        (1, 3, "old"),
        (3, 3, "unknown"),
    ],
)
def test_a_message_is_judged_by_its_generation_and_number_and_that_changes_nothing(
    generation, serial, verdict
):
    fence = Fence(2)
    for _ in range(3):
        assert fence.verdict(2, fence.serial) == "due"
        fence.take()
    assert fence.verdict(generation, serial) == verdict
    assert (fence.generation, fence.serial) == (2, 3)
