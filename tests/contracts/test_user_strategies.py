"""A policy of a user's file has the interface of the built-in policies, in both runtimes."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support.runtimes import ITERATIONS, SERVERS, WORKERS, config, every_runtime, rows

from outpace.experiment.running import simulate

MINE = '''
"""A policy with a worker program of its own."""

from dataclasses import dataclass
from typing import ClassVar

from outpace.sync import Apply, Decision, Policy, Pull, Reason
from outpace.sync.messages import Ack, Leave, Push


@dataclass(frozen=True)
class Confirmed(Policy):
    """BSP whose workers pull when all servers have confirmed their pushes."""

    apply: Apply = Apply.ON_ADVANCE

    acknowledges: ClassVar[bool] = True
    everywhere: ClassVar[str] = "workers of Confirmed wait for confirmations"

    def may_answer(self, pull, view):
        lead = pull.iteration - view.clock
        if lead < 0:
            return Decision(None, Reason.WITHIN_BOUND, lead)
        return Decision(pull.iteration + 1, Reason.BEYOND_BOUND, lead)

    def worker_program(self, workers, optimizer):
        return work


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
'''
POLICY = {"kind": "python", "target": "mine.py:Confirmed"}


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
