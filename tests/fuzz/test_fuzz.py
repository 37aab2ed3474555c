"""Messages from the wire, random and damaged: what is illegal is refused and changes nothing.

`python -m tests.fuzz --messages 1000000` tries more.
"""

import pytest
from tests.fuzz.machines import run


@pytest.mark.parametrize("seed", range(4))
def test_an_illegal_message_changes_nothing_and_raises_protocol_error_only(seed):
    counts = run(2500, seed)
    for what in ("decoder", "shard", "membership", "planner"):
        assert counts[f"taken by the {what}"] > 0
        assert counts[f"refused by the {what}"] > 0
