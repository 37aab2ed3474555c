"""A wrong configuration is refused in one line with the key, before anything is written."""

from __future__ import annotations

import re

import pytest

from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.experiment.running import simulate
from outpace.support.yaml_files import parse_yaml, with_overrides

BASE = """\
task: {kind: timing, parameters: 1000}
workers: 4
servers: 2
compute: {kind: constant, mean_s: 0.1}
sync: {kind: ssp, staleness: 3}
stop: {iterations: 2}
"""
MINE = """\
import outpace.sync

class NeedsMore:
    def __init__(self, more): ...

class Neither: ...

class WrongApply(outpace.sync.Policy):
    apply = "sometimes"
    def may_answer(self, pull, view): return True

class Confirmed(outpace.sync.Policy):
    everywhere = "workers of Confirmed wait for confirmations"
    excludes = {"pull": "a worker of Confirmed waits for all servers"}

    def __init__(self, patience=0.0): self.patience = patience
    def may_answer(self, pull, view): return True
    def problems(self, workers):
        if self.patience: yield "patience: Confirmed has none"

class Peers(outpace.sync.PeerStrategy):
    async def train(self, me): ...

def small(view): ...

number = 3
"""
PSSP, CUT = "kind: pssp, staleness: 1, block_probability", "kind: cutoff"
USER = "kind: python, target: 'mine.py"

# Overrides that precede the overrides of the rows, by the subject of the rows.
BEFORE = {
    "with servers": [],
    "digits": ["task={kind: digits-mlp}"],
    "without servers": ["sync={kind: ssgd}", "servers=1"],
    "cut-offs": ["sync={kind: cutoff}"],
    "overlap": ["overlap=backward", "non_finite=stop"],
    "layers": ["task={kind: timing, layers: [5, 5]}", "servers=3"],
}
ROWS = {
    "with servers": [
        # values
        ("seed=-1", "seed must be"),
        ("workers.x=1", "workers is 4, not a mapping"),
        ("workers", "must have the form key=value"),
        ("workers=20000 servers=20000", "must be at most 1,000,000, the messages"),
        ("stop={}", "stop: needs at least one of"),
        ("target.accuracy=90", "target.accuracy must be at most 1, not 90"),
        ("target.loss=1", "target.loss: the task 'timing' has no loss"),
        ("forward_share=0.5", "set overlap: backward"),
        # policies
        ("sync=null", "sync must be a mapping"),
        ("sync={kind: ssp}", "sync.staleness is missing"),
        ("sync={kind: drop-stragglers, quorum: 5}", "must be at most 4, the number of workers"),
        ("sync={kind: drop-stragglers, quorum: 0}", "sync.quorum must be at least 1, not 0"),
        (
            "sync={kind: partial-push, quorum: 2, quorum_percent: 50}",
            "sync: needs exactly one of",
        ),
        ("sync={kind: partial-push, quorum: 3, timeout_s: .nan}", "sync.timeout_s"),
        (f"sync={{{PSSP}: 1.1}}", "must be at most 1, not 1.1"),
        (f"sync={{{PSSP}: 0.5, coin: sever}}", "sync.coin must be 'worker' or 'server'"),
        (
            "sync={kind: dynamic-pssp, staleness: 3, alpha: significant}",
            "sync.alpha must be a number or 'significance', not 'significant'",
        ),
        (
            "sync={kind: psp-sampling, sample: 4}",
            "sync.sample must be at most 3, the number of other workers, not 4",
        ),
        (
            "sync={kind: drop-stragglers, quorum: 3, scale: staleness}",
            "sync.scale: staleness belongs to a single gradient",
        ),
        ("sync={kind: asp, scale: linear}", "sync.scale: linear multiplies the learning rate by"),
        ("sync={kind: dropstragglers, quorum: 3}", "Did you mean 'drop-stragglers'?"),
        ("sync=[{kind: bsp}, {kind: asp}, {kind: asp}]", "sync: a list of 3 policies for 2 serv"),
        (
            "sync=[{kind: bsp}, {kind: ssp, staleness: 3, stalenes: 3}]",
            "sync[1].stalenes: unknown key. Did you mean 'staleness'?",
        ),
        ("sync=[{kind: bsp}, 3]", "sync[1] must be a mapping, not 3"),
        ("sync_changes=[{sync: {kind: asp}}]", "sync_changes[0].at_s is missing"),
        (
            "sync_changes=[{at_s: 1, sync: [{kind: asp}, {kind: bsp}], keys: server-0}]",
            "sync_changes[0].keys",
        ),
        *(
            (f"sync_changes=[{{at_s: 1, sync: {{kind: {kind}}}}}]", "must follow it during the wh")
            for kind in ("ssgd", "hpsgd", "gossip")
        ),
        # a user's own
        ("task={kind: python, target: nothing}", "must be 'file.py:function'"),
        ("task={kind: python, target: 'none.py:make'}", "there is no file"),
        ("task={kind: python, target: 'nowhere.at.all:make'}", "there is no module"),
        ("conditions=[{keys: server-0}]", "conditions[0].pull, push must be the name of a func"),
        ("conditions=[{pull: mine}]", "conditions[0]"),
        ("conditions=[{pull: 'missing.py:f'}]", "missing.py"),
        ("conditions=[{pull: 'wrong.py:f'}]", "nothing_of_that_name"),
        ("conditions=[{pull: 'mine.py:number'}]", "conditions.pull: 'number' in"),
        ("skip={push: {condition: 'mine.py:smal'}}", "mine.py has no 'smal'. Did you mean 'small'"),
        (f"sync={{{USER}:NeedsMore'}}", "mine.py:NeedsMore raised TypeError"),
        (f"sync={{{USER}:Neither'}}", "must derive from outpace.sync.Policy"),
        (f"sync_changes=[{{at_s: 1, sync: {{{USER}:Neither'}}}}]", "must derive from outpace.sy"),
        (f"sync={{{USER}:WrongApply'}}", "'sometimes' is not a valid Apply"),
        (
            f"sync={{{USER}:Confirmed', arguments: {{patience: 1.0}}}}",
            "sync.patience: Confirmed has none",
        ),
        (
            f"sync={{{USER}:Confirmed'}} pull={{quorum_percent: 50}}",
            "pull: a worker of Confirmed waits",
        ),
        (f"sync=[{{{USER}:Confirmed'}}, {{kind: bsp}}]", "sync: workers of Confirmed wait"),
        (f"sync={{{USER}:Peers'}}", "servers: python has no servers: leave it out"),
        # skipping
        ("skip={}", "skip: needs push, pull or both"),
        (
            "skip={push: {every: 2, probability: 0.5}}",
            "skip.push: needs exactly one of probability, every and condition",
        ),
        (
            "skip={push: {every: 2, arguments: {most: 3}}}",
            "skip.push.arguments: only a condition takes arguments",
        ),
        ("skip={pull: {condition: mine}}", "skip.pull.target must be 'file.py:function' or"),
        # networks
        ("network.nodes={scheduler: {latency_s: 1}}", "network.nodes: no node 'scheduler'."),
        (
            "network.pairs=[{between: [worker-0, server-0]}, {between: [server-0, worker-0]}]",
            "network.pairs must be all different, not twice server-0 and worker-0",
        ),
        ("network.pairs=[{between: [worker-0, worker-0]}]", "between must be two different"),
        (
            "network.pairs=[{between: [worker-0, server-0], latency_s: -1}]",
            "latency_s must be",
        ),
        ("network.contention=unfair", "network.contention must be 'serialised' or 'fair'"),
        (
            "network.delays=[{message: leave, probability: 0.1, seconds: 1}]",
            "network.delays[0].message must be 'push', 'pull' or 'reply'",
        ),
        ("network.matrix={path: m.npy, unit: h}", "network.matrix.unit must be"),
        (
            "network={latency_s: 1, matrix: {path: m.npy, unit: s}}",
            "network.latency_s must be left out",
        ),
        (
            "network.machines={a: [worker-0, worker-7]}",
            "network.machines.a: no node 'worker-7'.",
        ),
        (
            "network.machines={a: [server-2]}",
            "network.machines.a: no node 'server-2'. Did you mean 'server-1'?",
        ),
        (
            "network.machines={a: [worker-0], b: [worker-0]}",
            "network.machines: worker-0 is named twice, on a and b: a node has one machine",
        ),
        ("network.machines={a: []}", "network.machines.a must be a list of one or more nodes"),
        ("network.machines=[[worker-0]]", "network.machines must be a mapping"),
        # failures
        ("faults={workers: {mtbf_s: 0}}", "faults.workers.mtbf_s must be above 0"),
        ("faults={workers: {}}", "faults.workers.mtbf_s is missing"),
        ("faults={schedule: [{at_s: 1}]}", "needs exactly one of worker and server"),
        (
            "faults={schedule: [{at_s: 1, worker: 4}]}",
            "faults.schedule[0].worker must be from 0 to 3, not 4",
        ),
        ("faults={recovery: {worker_s: -1}}", "faults.recovery.worker_s must be at least 0"),
        ("faults={recovery: {worker: 1}}", "Did you mean 'worker_s'"),
        # tasks
        ("task.layers=[2, 3]", "parameters must be left out where layers are given"),
        ("task.parameters=0", "task.parameters must be at least 1, not 0"),
        ("task={kind: timing, layers: []}", "task.layers must be a list of at least 1"),
        ("task={kind: timing, layers: [4, 0]}", "task.layers[1] must be at least 1, not 0"),
        (
            "task={kind: timing, layers: [9e14, 2e14]}",
            "task.layers must be at most 1e15 parameters in all",
        ),
        (
            "task={kind: timing, layers: [4, x]}",
            "task.layers[1] must be a whole number, not 'x'",
        ),
        ("task={kind: timing, layers: 5}", "task.layers must be a list, not 5"),
        ("slicing=rows", "slicing must be 'even' or 'layers', not 'rows'"),
    ],
    "digits": [
        ("batch_size=100000", "a batch of 100000 is more than the 1437 training samples"),
        ("servers=5000", "5000 servers cannot share 4810 parameters; use at most 4810"),
        ("stop={target_accuracy: 0.9} evaluate={}", "would never be checked"),
    ],
    "layers": [
        ("slicing=layers", "3 servers cannot share 2 parameter tensors; use at most 2, or slicing"),
    ],
    "cut-offs": [
        ("conditions=[{pull: 'mine.py:f'}]", "conditions: with cutoff the scheduler ends"),
        (
            "sync_changes=[{at_s: 1.0, sync: {kind: asp}}]",
            "sync: with cutoff the scheduler ends iterations",
        ),
        (f"sync=[{{{CUT}}}, {{kind: bsp}}]", "sync: with cutoff the scheduler ends"),
        ("skip={pull: {every: 2}}", "skip.pull: with cutoff all workers compute the same iterat"),
        ("sync.share=1.5", "share must be at most 1"),
        ("sync.model=pooledd", "pooledd"),
        (f"sync={{{CUT}, model: last-5, file: m.safetensors}}", "left out"),
        ("sync.ordered=true", "must be left out, except with deep-markov"),
        ("sync.warmup=-1", "warmup must be"),
        ("sync.samples=1", "samples must be"),
        ("sync.every=0", "every must be"),
        (
            f"sync={{{CUT}, model: elfving, warmup: 0}}",
            "sync.warmup must be at least 1: elfving learns from the warm-up alone, not 0",
        ),
        (
            f"sync={{{CUT}, model: fixed, decision: deadline}}",
            "sync.decision must be left out: fixed decides by itself, not deadline",
        ),
        (
            f"sync={{{CUT}, model: last-5, decision: replan}}",
            "sync.decision must be count, deadline or count-or-deadline with model last-5",
        ),
    ],
    "overlap": [
        ("non_finite=refuse", "overlap: non_finite: refuse"),
        ("skip={push: {every: 2}}", "overlap: with skip"),
        (f"sync={{{CUT}, model: fixed}}", "overlap: with cutoff"),
        ("sync={kind: ssgd} servers=1", "overlap: ssgd has no servers"),
        ("overlap=forward", "overlap must be 'none' or 'backward'"),
    ],
    "without servers": [
        ("sync={kind: local-sgd, every: 0}", "sync.every must be at least 1, not 0"),
        ("sync={kind: ssgd, all_reduce: star}", "sync.all_reduce must be 'ring' or 'tree'"),
        ("sync={kind: hpsgd, commit: late}", "sync.commit must be 'immediate' or 'delayed'"),
        ("sync={kind: diloco, every: 8, outer_lr: 0}", "sync.outer_lr must be above 0"),
        ("sync={kind: local-sgd, every: 8, overlap: true}", "sync.overlap: unknown key."),
        ("sync={kind: ssgd, wire: bf17}", "sync.wire must be 'full' or 'bf16', not 'bf17'"),
        ("sync={kind: gossip, wire: bf16}", "sync.wire: unknown key."),
        ("sync=[{kind: ssgd}]", "sync[0]: ssgd has no servers: all workers must follow it"),
        (f"sync={{{USER}:Peers', arguments: {{a: 1}}}}", "mine.py:Peers raised TypeError"),
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
        ("faults={servers: {mtbf_s: 1}}", "faults.servers: the strategy has no servers"),
        (
            "faults={schedule: [{at_s: 1, server: 0}]}",
            "faults.schedule.server: the strategy has no servers",
        ),
    ],
}


@pytest.mark.parametrize(
    ("subject", "override", "words"),
    [(subject, *row) for subject, rows in ROWS.items() for row in rows],
)
def test_what_is_wrong_is_said_in_a_line_and_nothing_is_written(tmp_path, subject, override, words):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "wrong.py").write_text("import nothing_of_that_name\n")
    first, *more = re.split(r" (?=\w+=)", override)

    def start() -> None:
        data = with_overrides(parse_yaml(BASE, "base"), [*BEFORE[subject], first, *more])
        simulate(experiment_from(data, "run.yaml", tmp_path), tmp_path / "out")

    with pytest.raises(ConfigError) as refusal:
        start()
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out").exists()
