"""The examples run, and do what the documentation says of them."""

import dataclasses

from tests.support.paths import EXAMPLES

import outpace
from outpace.experiment.comparison import variants_from
from outpace.support.yaml_files import read_yaml


def test_a_task_of_ones_own_reaches_its_target():
    result = outpace.simulate(EXAMPLES / "my_task.yaml")
    assert result.summary["time_to_target_s"] == result.summary["virtual_time_s"] < 10
    assert result.summary["accuracy"] >= 0.95


def test_the_demo_shows_what_each_strategy_costs():
    path = EXAMPLES / "demo.yaml"
    variants = variants_from(read_yaml(path), str(path), path.parent)
    short = [
        dataclasses.replace(
            variant,
            experiment=dataclasses.replace(
                variant.experiment, stop=outpace.Stop(virtual_time_s=4.0)
            ),
        )
        for variant in variants
    ]
    bsp, ssp, asp = (row.summary for row in outpace.compare(short))
    assert bsp["seconds"]["wait"] > ssp["seconds"]["wait"] > asp["seconds"]["wait"] == 0
    assert bsp["staleness"]["mean"] == 0 < ssp["staleness"]["mean"] < asp["staleness"]["mean"]
    assert bsp["gradients_applied"] < ssp["gradients_applied"] < asp["gradients_applied"]


def test_without_servers_who_never_waits_for_the_network_is_as_fast_as_who_never_uses_it():
    path = EXAMPLES / "all_reduce.yaml"
    variants = variants_from(read_yaml(path), str(path), path.parent)
    short = [
        dataclasses.replace(
            variant,
            experiment=dataclasses.replace(
                variant.experiment,
                stop=outpace.Stop(virtual_time_s=6.0),
                evaluate=outpace.Evaluate(),
            ),
        )
        for variant in variants
    ]
    found = {
        row.variant.experiment.sync.kind: row.summary for row in reversed(outpace.compare(short))
    }
    rate = {kind: summary["gradients_applied"] for kind, summary in found.items()}
    assert rate["ssgd"] < rate["local-sgd"] < rate["hpsgd"] <= rate["psgd"]
    assert rate["hpsgd"] > 0.9 * rate["psgd"]
    assert rate["bsp"] < rate["hpsgd"]
    assert found["hpsgd"]["seconds"]["wait"] == 0 < found["ssgd"]["seconds"]["wait"]
    assert found["hpsgd"]["overlap_fraction"] == 1 > found["ssgd"]["overlap_fraction"] == 0


def test_a_lasting_straggler_costs_bsp_and_ssp_what_asp_makes_use_of():
    path = EXAMPLES / "char_gpt.yaml"
    variants = variants_from(read_yaml(path), str(path), path.parent)
    short = [
        dataclasses.replace(
            variant,
            experiment=dataclasses.replace(
                variant.experiment,
                stop=outpace.Stop(virtual_time_s=4.0),
                evaluate=outpace.Evaluate(),
            ),
        )
        for variant in variants
    ]
    bsp, ssp, asp = (row.summary for row in outpace.compare(short))
    assert bsp["gradients_applied"] < ssp["gradients_applied"] < asp["gradients_applied"] / 1.5
    assert bsp["seconds"]["wait"] > ssp["seconds"]["wait"] > asp["seconds"]["wait"] == 0


def test_late_replies_cost_bsp_most_and_asp_least():
    path = EXAMPLES / "late_replies.yaml"
    variants = variants_from(read_yaml(path), str(path), path.parent)
    short = [
        dataclasses.replace(
            variant,
            experiment=dataclasses.replace(variant.experiment, stop=outpace.Stop(iterations=20)),
        )
        for variant in variants
    ]
    bsp, ssp, asp = (row.summary for row in outpace.compare(short))
    assert bsp["virtual_time_s"] > ssp["virtual_time_s"] > asp["virtual_time_s"]
    assert bsp["seconds"]["wait"] > 2 * ssp["seconds"]["wait"]


def test_every_strategy_runs_and_who_waits_least_applies_most():
    path = EXAMPLES / "strategies.yaml"
    variants = variants_from(read_yaml(path), str(path), path.parent)
    assert len(variants) == 13
    short = [
        dataclasses.replace(
            variant,
            experiment=dataclasses.replace(
                variant.experiment,
                stop=outpace.Stop(virtual_time_s=4.0),
                evaluate=outpace.Evaluate(),
            ),
        )
        for variant in variants
    ]
    found = {row.variant.name: row.summary for row in outpace.compare(short)}
    assert {summary["status"] for summary in found.values()} == {"complete"}
    waits = [found[name]["seconds"]["wait"] for name in ("BSP", "drop 2 stragglers", "ASP")]
    assert waits[0] > waits[1] > waits[2] == 0
    applied = [found[name]["gradients_applied"] for name in ("BSP", "drop 2 stragglers", "ASP")]
    assert applied == sorted(applied)
    assert found["SSP and ASP, a server each"]["servers"][1]["delayed_pulls"] == 0
    assert found["SSP and ASP, a server each"]["servers"][0]["delayed_pulls"] > 0


def test_cut_offs_lie_between_waiting_for_all_and_the_oracle():
    path = EXAMPLES / "cutoff.yaml"
    variants = variants_from(read_yaml(path), str(path), path.parent)
    short = [
        dataclasses.replace(
            variant,
            experiment=dataclasses.replace(
                variant.experiment,
                stop=outpace.Stop(virtual_time_s=5.0),
                evaluate=outpace.Evaluate(),
            ),
        )
        for variant in variants
    ]
    found = {row.variant.name: row.summary for row in outpace.compare(short)}
    assert {summary["status"] for summary in found.values()} == {"complete"}
    bsp, deadline, oracle = (found[name] for name in ("BSP", "last 5, deadline", "oracle"))
    assert bsp["gradients_applied"] < deadline["gradients_applied"] < oracle["gradients_applied"]
    assert bsp["seconds"]["wait"] > deadline["seconds"]["wait"] > oracle["seconds"]["wait"]
    assert "cut_offs" not in bsp
    assert deadline["pushes_abstained"] > 0
    assert all(summary["staleness"]["max"] == 0 for summary in (bsp, deadline, oracle))
