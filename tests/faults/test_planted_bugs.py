"""The search finds bugs: each of these is planted, and found within 200 seeds.

Those of `RARE` need a server that dies within milliseconds of another event, and more seeds.
"""

from __future__ import annotations

import pytest
from tests.faults.planted import PLANTED
from tests.faults.scenario import Scenario
from tests.faults.search import problem_of

RARE = (
    "the first iteration is the lowest over the shards",
    "pulls of a lost worker are forgotten only when it is back",
    "a worker that had left is not waited for while it starts",
    "a scheduler ignores that a worker is back",
)
# Seeds that have found a bug are tried first, which saves time. After a change of the code another
# seed may be the first to find it.
FIRST = {
    **dict.fromkeys(RARE, 369),
    "a process begins when one server has answered": 55,
    "a repeated push is applied": 3,
    "an exact checkpoint is cut within an iteration": 27,
    "a shard that is past the clock saves itself all the same": 27,
    "the optimizer's state is not restored": 18,
    "a run ends without the parameters of its servers": 27,
    "pending sums are restored twice": 5,
    "a process begins at the lowest iteration over the servers": 17,
    "a process that stands still is not killed": 12,
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_within_200_seeds(bug):
    with PLANTED[bug]():
        seeds = (FIRST.get(bug, 0), *range(400 if bug in RARE else 200))
        assert any(problem_of(Scenario.of(seed)) for seed in seeds)
