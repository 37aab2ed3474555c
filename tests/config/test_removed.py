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
        ({"sync": {"kind": "drop-stragglers", "quorum": 1, "late": "stop"}}, "{kind: cutoff"),
        ({"sync": {"kind": "partial-push", "quorum": 1, "late": "stop"}}, "timeout_s"),
        ({"faults": {"recovery": {"server_alone": True}}}, "remove it"),
        ({"on_server_loss": "restart-all"}, "use restart"),
    ],
)
def test_what_was_removed_is_refused_by_one_line_that_names_what_to_use(given, instead):
    with pytest.raises(ConfigError) as refused:
        outpace.simulate({**CONFIG, **given})
    (line,) = str(refused.value).splitlines()
    assert "was removed: " in line
    assert instead in line.partition("was removed: ")[2]


def test_failures_of_a_script_are_refused_by_one_line_that_says_what_to_simulate():
    faults = {"workers": {"mtbf_s": 60.0}}
    script = {"kind": "script", "path": str(SCRIPTS / "plain.py")}
    with pytest.raises(ConfigError) as refused:
        outpace.simulate({**CONFIG, "task": script, "faults": faults, "servers": 1})
    (line,) = str(refused.value).splitlines()
    assert "faults: failures of scripts are not simulated" in line
    assert "outpace calibrate RUN -o cluster.yaml" in line
    assert "task: {kind: timing" in line
