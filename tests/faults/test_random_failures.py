"""Random clusters with random failures keep what is promised.

A failure names the seed and the simplest scenario that was found. `python -m tests.faults.search`
tries more seeds.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.faults.scenario import (
    OVERLAPPING,
    STRATEGIES,
    Fault,
    Scenario,
)
from tests.faults.search import first_failure, problem_of

# What the search has found, and what was wrong.
FOUND = {
    "the last message of a worker was lost, and servers waited for it": Scenario(
        seed=748,
        strategy="ssptable",
        workers=2,
        servers=1,
        iterations=5,
        checkpoint_s=10.0,
        latency_s=0.015,
        faults=(
            Fault("crash", 0.332, node=0, for_s=0.0),
            Fault("lose", 0.512, node=0, for_s=0.0, flag=True),
        ),
    ),
    "a scheduler knew of a worker that was back before a server did": Scenario(
        seed=2027,
        strategy="global barrier",
        workers=2,
        servers=2,
        iterations=5,
        checkpoint_s=10.0,
        latency_s=0.01,
        faults=(Fault("lose", 0.469, node=1, for_s=0.0),),
    ),
    "a gradient of a worker that left was not counted as lost in part": Scenario(
        seed=462,
        strategy="bsp",
        workers=2,
        servers=2,
        iterations=8,
        checkpoint_s=10.0,
        latency_s=0.03,
        on_loss="continue",
        faults=(Fault("lose", 0.821, node=1, for_s=0.0),),
    ),
}


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_failures_break_no_promise(first):
    assert first_failure(range(first, first + 50)) is None


@pytest.mark.parametrize("strategy", OVERLAPPING)
def test_random_failures_between_the_parts_of_a_gradient_break_no_promise(strategy):
    problems = {
        seed: problem_of(replace(Scenario.of(seed), strategy=strategy)) for seed in range(16)
    }
    assert set(problems.values()) == {""}, problems


@pytest.mark.parametrize("what", FOUND)
def test_what_the_search_has_found(what):
    assert problem_of(FOUND[what]) == ""


def test_a_scenario_is_a_function_of_its_seed_and_seeds_try_every_strategy():
    first = [Scenario.of(seed) for seed in range(len(STRATEGIES))]
    assert {scenario.strategy for scenario in first} == set(STRATEGIES)
    assert first == [Scenario.of(seed) for seed in range(len(STRATEGIES))]
