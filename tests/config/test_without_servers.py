"""Keys that need servers are refused, one by one, before anything is started."""

from __future__ import annotations

import pytest
import torch
from tests.support.command import outpace, refused, require_refused_in_a_line

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.real.node.script.attach import attached
from outpace.sync import Asp, Ssgd

CONFIG = """\
task: {kind: timing, parameters: 1000}
workers: 4
compute: {kind: constant, mean_s: 0.1}
sync: {kind: ssgd}
stop: {iterations: 10}
"""
KINDS = [
    "{kind: ssgd}",
    "{kind: hpsgd}",
    "{kind: gossip}",
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    return tmp_path


def sync(text: str) -> str:
    return f"sync={text}"


BAD = [
    (sync("{kind: local-sgd, every: 0}"), "sync.every must be at least 1, not 0"),
    (sync("{kind: ssgd, all_reduce: star}"), "sync.all_reduce must be 'ring' or 'tree'"),
    (sync("{kind: hpsgd, commit: late}"), "sync.commit must be 'immediate' or 'delayed'"),
    (sync("{kind: diloco, every: 8, outer_lr: 0}"), "sync.outer_lr must be above 0"),
    (sync("{kind: local-sgd, every: 8, overlap: true}"), "sync.overlap: unknown key."),
    (sync("{kind: ssgd, wire: bf17}"), "sync.wire must be 'full' or 'bf16', not 'bf17'"),
    (sync("{kind: gossip, wire: bf16}"), "sync.wire: unknown key."),
    (sync("[{kind: ssgd}]"), "sync[0]: ssgd has no servers: all workers must follow it"),
    ("workers=1", "workers: ssgd needs at least 2 workers, which average among themselves"),
    ("servers=2", "servers: ssgd has no servers: leave it out"),
    ("slicing=layers", "slicing: ssgd has no servers"),
    ("pull={quorum_percent: 50}", "pull: ssgd has no servers"),
    ("skip={push: {every: 2}}", "skip: ssgd has no servers"),
    ("push_time={kind: constant, mean_s: 0.1}", "push_time: ssgd has no servers"),
    ("conditions=[{pull: 'mine.py:f'}]", "conditions: ssgd has no servers"),
    ("sync_changes=[{at_s: 1, sync: {kind: asp}}]", "sync_changes: ssgd has no servers"),
    (
        "network={delays: [{message: push, probability: 0.1, seconds: 1.0}]}",
        "network.delays: ssgd has no servers, so no push, pull or reply",
    ),
    ("network={nodes: {server-0: {latency_s: 0.1}}}", "network.nodes: no node 'server-0'"),
]


@pytest.mark.parametrize(("override", "words"), BAD)
def test_what_is_wrong_is_said_in_a_line_and_nothing_is_written(here, capsys, override, words):
    require_refused_in_a_line(capsys, here, "simulate", override, words)


@pytest.mark.parametrize("kind", ["adam", "lars"])
def test_hpsgd_takes_any_optimizer_of_a_configuration(here, kind):
    arguments = (sync("{kind: hpsgd}"), f"optimizer={{kind: {kind}}}", "--out", "out")
    assert outpace("simulate", "config.yaml", *arguments) == 0


class Mine(torch.optim.Adam):
    """An optimizer of which no second one can be made."""


@pytest.mark.parametrize("kind", KINDS)
def test_who_has_servers_cannot_change_to_a_strategy_without(here, capsys, kind):
    message = refused(
        capsys,
        "simulate",
        "config.yaml",
        "--out",
        "out",
        sync("{kind: asp}"),
        f"sync_changes=[{{at_s: 1, sync: {kind}}}]",
    )
    assert "sync_changes[0].sync: " in message
    assert "has no servers: all workers must follow it during the whole run" in message


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
