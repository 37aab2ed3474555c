"""Strategies of a user's file: the interface of the built-in ones, in both runtimes."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.runtimes import ITERATIONS, SERVERS, WORKERS, config, every_runtime, rows

from outpace.errors import ConfigError
from outpace.experiment.running import simulate

MINE = '''
"""A policy with a worker program of its own, and a strategy without servers."""

from dataclasses import dataclass
from typing import ClassVar

from outpace.sync import Apply, Decision, PeerStrategy, Policy, Pull, Reason, iterations
from outpace.sync.messages import Ack, Leave, Push


@dataclass(frozen=True)
class Confirmed(Policy):
    """BSP whose workers pull when all servers have confirmed their pushes."""

    patience: float = 0.0
    apply: Apply = Apply.ON_ADVANCE

    acknowledges: ClassVar[bool] = True
    everywhere: ClassVar[str] = "workers of Confirmed wait for confirmations"
    excludes: ClassVar[dict[str, str]] = {"pull": "a worker of Confirmed waits for all servers"}

    def may_answer(self, pull, view):
        lead = pull.iteration - view.clock
        if lead < 0:
            return Decision(None, Reason.WITHIN_BOUND, lead)
        return Decision(pull.iteration + 1, Reason.BEYOND_BOUND, lead)

    def worker_program(self, workers, optimizer):
        return work

    def problems(self, workers):
        if self.patience:
            yield "patience: Confirmed has none"


async def work(me):
    parameters, versions, iteration = me.initial_parameters(), [0] * len(me.servers), 0
    while not me.must_stop(iteration):
        started = me.now
        gradient = await me.execute(parameters, iteration)
        computed = me.now
        for server, name in enumerate(me.servers):
            me.send(name, Push(me.worker, iteration, versions[server], gradient[server]))
        for _ in me.servers:
            assert isinstance(await me.recv(), Ack)
        for name in me.servers:
            me.send(name, Pull(me.worker, iteration))
        for _ in me.servers:
            reply = await me.recv()
            parameters[reply.shard] = reply.parameters
            versions[reply.shard] = reply.version
        me.iteration_finished(iteration, started, computed, me.now, reply.held, reply.shard)
        iteration += 1
    for name in me.servers:
        me.send(name, Leave(me.worker))


@dataclass(frozen=True)
class EveryNth(PeerStrategy):
    """Averages the gradients of every n-th iteration and drops the others."""

    every: int

    averages_gradients: ClassVar[bool] = True

    async def train(self, me):
        model = me.common()
        async for iteration in iterations(me, model):
            if iteration.number % self.every == 0:
                reduced = await me.begin_all_reduce(iteration.gradient).result()
                model.commit(reduced.mean, 1, reduced.weight)


class Neither:
    pass
'''
POLICY = {"kind": "python", "target": "mine.py:Confirmed"}
PEERS = {"kind": "python", "target": "mine.py:EveryNth", "arguments": {"every": 2}}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)


@every_runtime
def test_a_users_policy_has_its_own_worker_program_and_its_servers_confirm_pushes(run):
    result, expected = (
        run(config("bsp", deterministic=True) | {"sync": POLICY}),
        simulate(config("bsp")),
    )
    assert result.summary["parameters_digest"] == expected.summary["parameters_digest"]
    done = Counter(row["worker"] for row in rows(result, "iteration"))
    assert done == dict.fromkeys(range(WORKERS), ITERATIONS)
    # Per iteration and server: push, confirmation, pull, reply.
    assert result.summary["messages"] == 4 * SERVERS * WORKERS * ITERATIONS


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sync": POLICY | {"target": "mine.py:Neither"}}, "must derive from outpace.sync.Policy"),
        ({"sync": POLICY | {"arguments": {"patience": 1.0}}}, "sync.patience: Confirmed has none"),
        ({"sync": PEERS | {"arguments": {}}}, "missing 1 required positional argument: 'every'"),
        ({"sync": POLICY, "pull": {"quorum_percent": 50}}, "pull: a worker of Confirmed waits"),
        ({"sync": [POLICY, {"kind": "bsp"}, {"kind": "bsp"}]}, "sync: workers of Confirmed wait"),
        ({"sync": PEERS}, "servers: python has no servers: leave it out"),
        ({"sync": [PEERS] * SERVERS}, "sync[0]: python has no servers: all workers must follow"),
    ],
)
def test_what_a_users_strategy_cannot_do_is_said_before_anything_is_written(
    tmp_path, changes, words
):
    with pytest.raises(ConfigError) as caught:
        simulate(config("bsp") | changes, tmp_path / "out")
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()
