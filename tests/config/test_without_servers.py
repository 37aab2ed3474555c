"""Strategies without servers refuse some keys and arguments of scripts and of code."""

from __future__ import annotations

import pytest
import torch

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.real.script.attach import attached
from outpace.sync import Asp, Ssgd


class Mine(torch.optim.Adam):
    """An optimizer that cannot be made a second time."""


@pytest.mark.parametrize(
    ("sync", "optimizer", "words"),
    [
        ("ssgd", torch.optim.LBFGS, "LBFGS computes several gradients for a step"),
        ("psgd", torch.optim.LBFGS, "LBFGS computes several gradients"),
        ("hpsgd", Mine, "cannot train with Mine, because .*: use one of torch's ASGD, Ada"),
    ],
)
def test_an_optimizer_of_a_script_that_does_not_fit_is_refused(sync, optimizer, words):
    script = {"kind": "script", "path": "-"}
    settings = {"task": script, "workers": 2, "sync": {"kind": sync}}
    experiment = experiment_from(settings, "the test")
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ConfigError, match=words):
        attached(None, 0, experiment, model, optimizer(model.parameters(), lr=0.1))


def test_code_that_changes_a_run_finds_no_servers():
    config = {
        "task": {"kind": "timing"},
        "workers": 2,
        "compute": {"kind": "constant", "mean_s": 0.1},
        "stop": {"iterations": 10},
    }
    heard = []

    def control(run):
        heard.append(run.servers)
        run.at(0.55, lambda: heard.append(run.summary()["gradients_applied"]))
        for action in (
            lambda: run.set_policy("*", Asp()),
            lambda: run.set_policy("*", Ssgd()),
            lambda: run.set_pull_condition("*", None),
        ):
            with pytest.raises(ConfigError, match="ssgd has no servers"):
                action()

    simulate({**config, "sync": {"kind": "ssgd"}}, control=control)
    assert heard == [[], 10]

    def to_ssgd(run):
        with pytest.raises(ConfigError, match="ssgd has no servers"):
            run.set_policy("*", Ssgd())

    simulate({**config, "sync": {"kind": "asp"}}, control=to_ssgd)
