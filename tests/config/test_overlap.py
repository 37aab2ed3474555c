"""`overlap: backward` is refused, with the reason, where a push needs the whole gradient."""

from __future__ import annotations

import pytest

from outpace.config.reading import experiment_from, to_plain
from outpace.errors import ConfigError

BASE = {
    "task": {"kind": "timing", "parameters": 8},
    "workers": 4,
    "servers": 2,
    "compute": {"kind": "constant", "mean_s": 1.0},
    "stop": {"iterations": 1},
    "sync": {"kind": "bsp"},
    "overlap": "backward",
    "non_finite": "stop",
}
ALLOWED = {
    "asp": {"sync": {"kind": "asp"}},
    "a strategy that drops": {"sync": {"kind": "drop-stragglers", "quorum": 3}},
    "partial push": {"sync": {"kind": "partial-push", "quorum": 3}},
    "partial pull": {"pull": {"quorum_percent": 50}},
    "a strategy for each server": {"sync": [{"kind": "bsp"}, {"kind": "asp"}]},
    "whole tensors": {"slicing": "layers", "task": {"kind": "digits-mlp"}},
    "a longer forward pass": {"forward_share": 0.5},
}
REFUSED = {
    "overlap: non_finite: refuse": {"non_finite": "refuse"},
    "overlap: with skip": {"skip": {"push": {"every": 2}}},
    "overlap: with cutoff": {"sync": {"kind": "cutoff", "model": "fixed"}},
    "overlap: ssgd has no servers": {"sync": {"kind": "ssgd"}, "servers": 1},
    "overlap must be 'none' or 'backward'": {"overlap": "forward"},
}


@pytest.mark.parametrize("changes", ALLOWED.values(), ids=ALLOWED)
def test_pushes_during_backward_go_with(changes):
    made = experiment_from({**BASE, **changes}, "test")
    assert experiment_from(to_plain(made), "again") == made


@pytest.mark.parametrize(("reason", "changes"), REFUSED.items(), ids=REFUSED)
def test_pushes_during_backward_are_refused(reason, changes):
    with pytest.raises(ConfigError) as refusal:
        experiment_from({**BASE, **changes}, "test")
    assert reason in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


def test_a_task_has_a_forward_share_only_with_overlap():
    with pytest.raises(ConfigError, match="set overlap: backward"):
        experiment_from({**BASE, "overlap": "none", "forward_share": 0.5}, "test")
