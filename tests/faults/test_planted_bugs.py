"""The search finds bugs: each of these is planted, and found within 200 seeds.

Those of `RARE` need a server that dies within milliseconds of another event, and more seeds.
"""

from __future__ import annotations

import pytest
from tests.faults.planted import PLANTED
from tests.faults.scenario import Scenario
from tests.faults.search import problem_of

RARE = {
    "the first iteration is the lowest over the shards": 500,
    "pulls of a lost worker are forgotten only when it is back": 400,
}
# Seeds that have found a bug are tried first, which saves time. After a change of the code another
# seed may be the first to find it.
FIRST = {
    "the first iteration is the lowest over the shards": 478,
    "pulls of a lost worker are forgotten only when it is back": 260,
    "a process begins when one server has answered": 55,
    "a repeated push is applied": 48,
    "a scheduler ignores that a worker is back": 3735,
    "an exact checkpoint is cut within an iteration": 27,
    "the optimizer's state is not restored": 18,
    "a process begins at the lowest iteration over the servers": 17,
    "a process that stands still is not killed": 12,
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_within_200_seeds(bug):
    with PLANTED[bug]():
        seeds = (FIRST.get(bug, 0), *range(RARE.get(bug, 200)))
        assert any(problem_of(Scenario.of(seed)) for seed in seeds)
