"""The tables of the pages agree with the recorded results."""

from __future__ import annotations

import json

import pytest
from benchmarks.explain.__main__ import BENCHMARK as EXPLAIN
from benchmarks.failures.__main__ import BENCHMARK as FAILURES
from benchmarks.fidelity import __main__ as fidelity
from benchmarks.papers import results as papers
from benchmarks.recorded import README, with_tables
from benchmarks.strategies import regret
from benchmarks.strategies.outcome import results
from benchmarks.strategies.suite import cells
from benchmarks.strategies.table import COMMAND, PAGE, page, summary


def assert_has(path, command, tables):
    text = path.read_text("utf-8")
    assert with_tables(text, command, tables) == text


@pytest.mark.parametrize("measured", [EXPLAIN, FAILURES], ids=lambda measured: measured.command)
def test_the_readme_has_the_results_of_a_benchmark(measured):
    rows = json.loads(measured.results.read_text("utf-8"))
    assert_has(README, measured.command, measured.tables(rows))


def test_the_readme_has_the_goals_of_fidelity():
    assert_has(README, fidelity.COMMAND, fidelity.goals())


def test_the_pages_have_the_results_of_the_papers():
    found = papers.kept()
    assert_has(README, papers.COMMAND, papers.summary(found))
    assert papers.PAGE.read_text("utf-8") == papers.page(found)


def test_the_readme_and_the_page_have_the_results_of_the_strategies():
    outcomes, regrets = results(cells()), regret.kept(cells())
    assert_has(README, COMMAND, summary(outcomes, [cell.name for cell in cells()], regrets))
    assert PAGE.read_text("utf-8") == page(outcomes, regrets)
