"""The examples run, and do what the documentation says of them."""

from __future__ import annotations

import dataclasses
import runpy

import pytest
from tests.support.paths import EXAMPLES

import outpace
from outpace.experiment.comparison import seeds_from, variants_from
from outpace.support.targets import Target
from outpace.support.yaml_files import read_yaml
from outpace.tasks import Timing

# The number of parameters of the tasks in the examples.
SIZES = {
    "all_reduce.yaml": 4_810,
    "strategies.yaml": 38_282,
    "cutoff.yaml": 38_282,
    "char_gpt.yaml": 114_432,
}


def variants_of(name: str, stop: outpace.Stop) -> list[outpace.Variant]:
    """Return the variants of an example, with this end and with times in place of gradients."""
    path = EXAMPLES / name
    changes: dict[str, object] = {"stop": stop, "evaluate": outpace.Evaluate()}
    if name in SIZES:
        changes["task"] = Timing(parameters=SIZES[name])
    return [
        dataclasses.replace(variant, experiment=dataclasses.replace(variant.experiment, **changes))
        for variant in variants_from(read_yaml(path), str(path), path.parent)
    ]


def summaries(variants: list[outpace.Variant]) -> dict[str, dict]:
    return {row.variant.name: row.summary for row in outpace.compare(variants)}


def test_a_task_of_ones_own_reaches_its_target():
    result = outpace.simulate(EXAMPLES / "my_task.yaml")
    assert result.summary["time_to_target_s"] == result.summary["virtual_time_s"] < 10
    assert result.summary["accuracy"] >= 0.95


@pytest.mark.parametrize("name", SIZES)
def test_the_task_of_an_example_is_trained(name):
    path = EXAMPLES / name
    experiment = variants_from(read_yaml(path), str(path), path.parent)[0].experiment
    short = dataclasses.replace(experiment, stop=outpace.Stop(iterations=1))
    result = outpace.simulate(short)
    assert result.summary["gradients_applied"] == experiment.workers
    assert sum(tensor.numel() for tensor in result.parameters.values()) == SIZES[name]


def test_the_demo_has_a_target_and_shows_what_each_strategy_costs():
    variants = variants_of("demo.yaml", outpace.Stop(virtual_time_s=10.0))
    assert seeds_from(read_yaml(EXAMPLES / "demo.yaml"), "demo.yaml") == 3
    assert {variant.experiment.target for variant in variants} == {Target(accuracy=0.95)}
    *_, cut_offs, _ = variants
    assert cut_offs.experiment.sync.fitted_in_run
    variants.remove(cut_offs)  # fitting takes seconds
    bsp, ssp, partial_push, hpsgd = summaries(variants).values()
    applied = [run["gradients_applied"] for run in (bsp, ssp, partial_push, hpsgd)]
    assert applied == sorted(applied)
    waits = [run["seconds"]["wait"] for run in (bsp, ssp, partial_push, hpsgd)]
    assert waits == sorted(waits, reverse=True)
    assert waits[-1] == 0 == bsp["staleness"]["mean"] < ssp["staleness"]["mean"]


def test_without_servers_a_run_that_never_waits_is_as_fast_as_one_without_a_network():
    variants = variants_of("all_reduce.yaml", outpace.Stop(virtual_time_s=6.0))
    found = {
        row.variant.experiment.sync.kind: row.summary for row in reversed(outpace.compare(variants))
    }
    rate = {kind: summary["gradients_applied"] for kind, summary in found.items()}
    assert rate["ssgd"] < rate["local-sgd"] < rate["hpsgd"] <= rate["psgd"]
    assert rate["hpsgd"] > 0.9 * rate["psgd"]
    assert rate["bsp"] < rate["hpsgd"]
    assert found["hpsgd"]["seconds"]["wait"] == 0 < found["ssgd"]["seconds"]["wait"]
    assert found["hpsgd"]["overlap_fraction"] == 1 > found["ssgd"]["overlap_fraction"] == 0


def test_a_lasting_straggler_costs_bsp_and_ssp_what_asp_makes_use_of():
    variants = variants_of("char_gpt.yaml", outpace.Stop(virtual_time_s=4.0))
    bsp, ssp, asp = summaries(variants).values()
    assert bsp["gradients_applied"] < ssp["gradients_applied"] < asp["gradients_applied"] / 1.5
    assert bsp["seconds"]["wait"] > ssp["seconds"]["wait"] > asp["seconds"]["wait"] == 0


def test_late_replies_cost_bsp_most_and_asp_least():
    variants = variants_of("late_replies.yaml", outpace.Stop(iterations=20))
    bsp, ssp, asp = summaries(variants).values()
    assert bsp["virtual_time_s"] > ssp["virtual_time_s"] > asp["virtual_time_s"]
    assert bsp["seconds"]["wait"] > 2 * ssp["seconds"]["wait"]


def test_every_strategy_runs_and_the_shorter_its_waits_the_more_it_applies():
    found = summaries(variants_of("strategies.yaml", outpace.Stop(virtual_time_s=4.0)))
    assert len(found) == 13
    assert {summary["status"] for summary in found.values()} == {"complete"}
    waits = [found[name]["seconds"]["wait"] for name in ("BSP", "drop the last eighth", "ASP")]
    assert waits[0] > waits[1] > waits[2] == 0
    applied = [found[name]["gradients_applied"] for name in ("BSP", "drop the last eighth", "ASP")]
    assert applied == sorted(applied)
    assert found["SSP and ASP, a server each"]["servers"][1]["delayed_pulls"] == 0
    assert found["SSP and ASP, a server each"]["servers"][0]["delayed_pulls"] > 0


def test_cut_offs_lie_between_waiting_for_all_and_the_oracle():
    found = summaries(variants_of("cutoff.yaml", outpace.Stop(virtual_time_s=5.0)))
    assert {summary["status"] for summary in found.values()} == {"complete"}
    bsp, deadline, oracle = (found[name] for name in ("BSP", "last 5, deadline", "oracle"))
    assert bsp["gradients_applied"] < deadline["gradients_applied"] < oracle["gradients_applied"]
    assert bsp["seconds"]["wait"] > deadline["seconds"]["wait"] > oracle["seconds"]["wait"]
    assert "cut_offs" not in bsp
    assert deadline["pushes_abstained"] > 0
    assert all(summary["staleness"]["max"] == 0 for summary in (bsp, deadline, oracle))


def test_sync_switch_goes_from_bsp_to_asp_once_all_workers_have_done_the_synchronous_part():
    module = runpy.run_path(str(EXAMPLES / "sync_switch.py"))
    config = {
        "task": {"kind": "timing", "parameters": 1000},
        "workers": 3,
        "sync": {"kind": "bsp"},
        "compute": {"kind": "constant", "mean_s": 0.1, "factors": [1.0, 1.0, 2.0]},
        "stop": {"virtual_time_s": 8.1},
    }
    result = outpace.simulate(config, control=module["switch"])
    # 20 iterations at the pace of the slowest end at 4 s; then each worker has its own pace.
    assert result.summary["iterations"] == [61, 61, 40]
