"""The examples run, and do what the documentation says about them."""

from __future__ import annotations

import dataclasses
import runpy

import pytest
from tests.support.paths import EXAMPLES

import outpace
from outpace.experiment.comparison import variants_from
from outpace.support.yaml_files import read_yaml
from outpace.tasks import Timing

# The number of parameters of the tasks in the examples.
SIZES = {
    "all_reduce.yaml": 4_810,
    "strategies.yaml": 38_282,
    "cutoff.yaml": 38_282,
    "char_gpt.yaml": 114_432,
}
# Variants of each example, from the one that waits most.
COMPARISONS = {
    "all_reduce.yaml": ["SSGD", "HPSGD"],
    "strategies.yaml": ["BSP", "drop the last eighth", "ASP"],
    "cutoff.yaml": ["BSP", "last 5, deadline", "oracle"],
    "char_gpt.yaml": ["BSP", "SSP", "ASP"],
    "late_replies.yaml": ["BSP", "SSP", "ASP"],
    "demo.yaml": ["BSP", "partial push", "HPSGD"],
}


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


@pytest.mark.parametrize("name", COMPARISONS)
def test_waits_of_each_variant_are_as_the_example_says(name):
    """Gradients are left out: only times matter."""
    path, most_s = EXAMPLES / name, outpace.Stop(virtual_time_s=4.0)
    changes: dict[str, object] = {"stop": most_s, "evaluate": outpace.Evaluate()}
    if name in SIZES:
        changes["task"] = Timing(parameters=SIZES[name])
    variants = [
        dataclasses.replace(each, experiment=dataclasses.replace(each.experiment, **changes))
        for each in variants_from(read_yaml(path), str(path), path.parent)
        if not each.name.startswith("learned")  # fitting takes seconds
    ]
    found = {row.variant.name: row.summary for row in outpace.compare(variants)}
    assert {summary["status"] for summary in found.values()} == {"complete"}
    waits = [found[each]["seconds"]["wait"] for each in COMPARISONS[name]]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > 2 * waits[-1]


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
