"""A key of an earlier version is refused by one line, which names what to use instead."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.paths import SCRIPTS

import outpace
from outpace.errors import ConfigError

CONFIG: dict[str, Any] = {
    "task": {"kind": "timing", "parameters": 1000},
    "workers": 2,
    "sync": {"kind": "bsp"},
    "compute": {"kind": "constant", "mean_s": 0.1},
    "stop": {"iterations": 2},
}


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ({"sync": {"kind": "adaptive"}}, "sync_changes"),
        ({"sync": {"kind": "adaptive", "rule": "adacomm", "every": 4}}, "sync_changes"),
        ({"sync": {"kind": "specsync", "base": "ssp", "staleness": 2}}, "asp, or ssp"),
        ({"sync": {"kind": "drop-stragglers", "quorum": 1, "late": "stop"}}, "{kind: cutoff"),
        ({"sync": {"kind": "partial-push", "quorum": 1, "late": "stop"}}, "timeout_s"),
        ({"sync": {"kind": "partial-push", "quorum": 1, "enough": 2}}, "drop-stragglers"),
        ({"sync": {"kind": "ssptable", "staleness": 1}}, "ssptable.py:SspTable"),
        ({"barrier": "global"}, "global_barrier.py:behind_barrier"),
        ({"sync_changes": [{"at_s": 1.0, "sync": {"kind": "adaptive"}}]}, "sync_changes"),
        ({"executor": {"kind": "fastest", "width": 8}}, "kind: auto"),
        (
            {"faults": {"schedule": [{"at_s": 0.1, "worker": 0, "kind": "duplicate"}]}},
            "kind: loss",
        ),
        ({"faults": {"workers": {"mtbf_s": 1.0, "kind": "reorder"}}}, "kind: loss"),
    ],
)
def test_what_was_removed_is_refused_by_one_line_that_names_what_to_use(given, instead):
    with pytest.raises(ConfigError) as refused:
        outpace.simulate({**CONFIG, **given})
    (line,) = str(refused.value).splitlines()
    assert "was removed: " in line
    assert instead in line.partition("was removed: ")[2]


@pytest.mark.parametrize(
    "given",
    [
        {"barrier": "per-server"},
        {"sync": {"kind": "drop-stragglers", "quorum": 1, "late": "finish"}},
        {"sync": {"kind": "partial-push", "quorum": 1, "late": "finish", "enough": None}},
    ],
)
def test_former_defaults_in_the_configuration_of_an_old_run_folder_say_nothing(given):
    assert outpace.simulate({**CONFIG, **given}).summary["status"] == "complete"


def test_failures_of_a_script_are_refused_by_one_line_that_says_what_to_simulate():
    faults = {"workers": {"mtbf_s": 60.0}}
    script = {"kind": "script", "path": str(SCRIPTS / "plain.py")}
    with pytest.raises(ConfigError) as refused:
        outpace.simulate({**CONFIG, "task": script, "faults": faults, "servers": 1})
    (line,) = str(refused.value).splitlines()
    assert "faults: failures of scripts are not simulated" in line
    assert "outpace calibrate RUN -o cluster.yaml" in line
    assert "task: {kind: timing" in line
