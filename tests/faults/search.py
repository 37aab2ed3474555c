"""Tries scenarios, and makes those that fail simpler. `python -m tests.faults.search --help`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass

from tests.faults.cluster import Cluster
from tests.faults.scenario import Scenario

from outpace.errors import OutpaceError


@dataclass(frozen=True)
class Failure:
    """A scenario that fails, made as simple as it could be made."""

    found: Scenario
    scenario: Scenario
    problem: str

    def __str__(self) -> str:
        return f"seed {self.found.seed}: {self.problem}\n  simplest: {self.scenario}"


def problem_of(scenario: Scenario) -> str:
    """Run a scenario; return what went wrong, or an empty text."""
    try:
        Cluster(scenario).run()
    except (AssertionError, OutpaceError, ArithmeticError, LookupError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def shrink(scenario: Scenario, problem: str, tries: int = 300) -> tuple[Scenario, str]:
    """Return the simplest scenario found that fails, and how."""
    is_simpler = True
    while is_simpler:
        is_simpler = False
        for simpler in scenario.simpler():
            tries -= 1
            if tries < 0:
                return scenario, problem
            if found := problem_of(simpler):
                scenario, problem, is_simpler = simpler, found, True
                break
    return scenario, problem


def first_failure(seeds: Iterable[int]) -> Failure | None:
    """Return the first of these seeds that fails, made simple; None: none does."""
    for seed in seeds:
        scenario = Scenario.of(seed)
        if problem := problem_of(scenario):
            return Failure(scenario, *shrink(scenario, problem))
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--all", action="store_true", help="continue after a failure")
    options = parser.parse_args()
    started, failed = time.perf_counter(), 0
    for seed in range(options.first, options.first + options.seeds):
        if failure := first_failure([seed]):
            sys.stdout.write(f"{failure}\n")
            failed += 1
            if not options.all:
                break
    tried, passed_s = seed + 1 - options.first, time.perf_counter() - started
    sys.stdout.write(f"{tried} seeds from {options.first}: {failed} failed, {passed_s:.1f} s\n")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
