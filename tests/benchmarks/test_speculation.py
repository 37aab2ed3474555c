"""The comparison of SpecSync with ASP."""

import json

from benchmarks.strategies.speculation import ASP, RESULTS, SPECULATING, chosen, table
from benchmarks.strategies.table import README

from outpace.config.reading import experiment_from


def test_the_readme_has_the_recorded_results():
    data = json.loads(RESULTS.read_text("utf-8"))
    assert list(data["cells"]) == [cell.name for cell in chosen()]
    assert table(data) in README.read_text("utf-8")
    assert f"{data['date']}, commit {data['commit']}" in README.read_text("utf-8")


def test_every_strategy_can_be_run_on_every_cluster_of_the_comparison():
    for cell in chosen():
        for strategy in (ASP, *SPECULATING):
            data = cell.configuration(strategy, 0.1, 0, 1.0)
            assert experiment_from(data, cell.name).sync.kind == strategy.sync["kind"]
