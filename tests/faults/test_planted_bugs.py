"""The search finds bugs: each of these is planted, and found within 200 seeds.

Those of `RARE` need a server that dies within milliseconds of another event, and more seeds.
"""

from __future__ import annotations

import pytest
from tests.faults.planted import PLANTED
from tests.faults.scenario import Scenario
from tests.faults.search import problem_of

RARE = {
    "the first iteration is the lowest over the shards": 400,
    "pulls of a lost worker are forgotten only when it is back": 400,
    "an answer of a server that was lost since counts": 400,
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_within_200_seeds(bug):
    with PLANTED[bug]():
        assert any(problem_of(Scenario.of(seed)) for seed in range(RARE.get(bug, 200)))
