"""Invalid policies, conditions and changes are refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.command import outpace, require_refused_in_a_line

CONFIG = """\
task: {kind: timing, parameters: 1000}
workers: 4
servers: 2
compute: {kind: constant, mean_s: 0.1}
sync: {kind: ssp, staleness: 3}
stop: {iterations: 10}
"""
MINE = """\
import nothing_of_that_name
"""
BROKEN = """\
import outpace.sync

class NeedsMore:
    def __init__(self, more): ...

class HasNoMethods: ...

class WrongApply(outpace.sync.Policy):
    apply = "sometimes"
    def may_answer(self, pull, view): return True

number = 3

def raises(pull, view): raise ValueError("no more")
def no(pull, view): return None
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "broken.py").write_text(BROKEN)
    return tmp_path


def sync(text: str) -> str:
    return f"sync={text}"


BAD = [
    # numbers
    (
        sync("{kind: drop-stragglers, quorum: 5}"),
        "sync.quorum must be at most 4, the number of workers, not 5",
    ),
    (sync("{kind: drop-stragglers, quorum: 0}"), "sync.quorum must be at least 1, not 0"),
    (sync("{kind: partial-push, quorum: 2, quorum_percent: 50}"), "sync: needs exactly one of"),
    (sync("{kind: partial-push, quorum: 3, timeout_s: .nan}"), "sync.timeout_s"),
    (sync("{kind: pssp, staleness: 3, block_probability: 1.1}"), "must be at most 1, not 1.1"),
    (
        sync("{kind: pssp, staleness: 1, block_probability: 0.5, coin: sever}"),
        "sync.coin must be 'worker' or 'server', not 'sever'",
    ),
    (
        sync("{kind: dynamic-pssp, staleness: 3, alpha: significant}"),
        "sync.alpha must be a number or 'significance', not 'significant'",
    ),
    (
        sync("{kind: psp-sampling, sample: 4}"),
        "sync.sample must be at most 3, the number of other workers, not 4",
    ),
    (
        sync("{kind: drop-stragglers, quorum: 3, scale: staleness}"),
        "sync.scale: staleness belongs to a single gradient",
    ),
    (
        sync("{kind: asp, scale: linear}"),
        "sync.scale: linear multiplies the learning rate by the number of gradients",
    ),
    (sync("{kind: dropstragglers, quorum: 3}"), "Did you mean 'drop-stragglers'?"),
    # lists
    (sync("[{kind: bsp}, {kind: asp}, {kind: asp}]"), "sync: a list of 3 policies for 2 servers"),
    (
        sync("[{kind: bsp}, {kind: ssp, staleness: 3, stalenes: 3}]"),
        "sync[1].stalenes: unknown key. Did you mean 'staleness'?",
    ),
    (sync("[{kind: bsp}, 3]"), "sync[1] must be a mapping, not 3"),
    # changes
    ("sync_changes=[{sync: {kind: asp}}]", "sync_changes[0].at_s is missing"),
    (
        "sync_changes=[{at_s: 1, sync: [{kind: asp}, {kind: bsp}], keys: server-0}]",
        "sync_changes[0].keys",
    ),
    # a user's own
    ("conditions=[{keys: server-0}]", "conditions[0].pull, push must be the name of a function"),
    ("conditions=[{pull: mine}]", "conditions[0]"),
    ("conditions=[{pull: 'missing.py:f'}]", "missing.py"),
    ("conditions=[{pull: 'mine.py:f'}]", "nothing_of_that_name"),
    ("conditions=[{pull: 'broken.py:number'}]", "conditions.pull: 'number' in"),
    (sync("{kind: python, target: 'broken.py:NeedsMore'}"), "broken.py:NeedsMore raised TypeError"),
    (
        "sync_changes=[{at_s: 1, sync: {kind: python, target: 'broken.py:HasNoMethods'}}]",
        "must derive from outpace.sync.Policy",
    ),
    (sync("{kind: python, target: 'broken.py:WrongApply'}"), "'sometimes' is not a valid Apply"),
]


@pytest.mark.parametrize(("override", "words"), BAD)
def test_what_is_wrong_is_said_in_a_line_and_nothing_is_written(
    here: Path, capsys, override, words
):
    require_refused_in_a_line(capsys, here, "simulate", override, words)


@pytest.mark.parametrize(
    ("function", "words"),
    [("raises", "raised ValueError"), ("no", "must answer true or false, not None")],
)
def test_a_condition_that_fails_on_its_way_is_a_failed_run(here, capsys, function, words):
    override = f"conditions=[{{pull: 'broken.py:{function}'}}]"
    assert outpace("simulate", "config.yaml", override, "--out", "out") == 1
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert words in message
    assert f"broken.py:{function} of server 0" in message
    assert "for worker 0's pull of iteration 0" in message
    assert len(message.splitlines()) == 1, message
    assert '"failed"' in (here / "out" / "summary.json").read_text()
