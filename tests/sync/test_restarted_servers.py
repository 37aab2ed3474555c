"""Servers that come back from an earlier state, while the workers go on."""

from __future__ import annotations

from functools import partial

import pytest
from tests.support.ledger import Ledger
from tests.sync.test_beginning_in_the_middle import LATE, POLICIES, SUM

from outpace.sync import Bsp
from outpace.sync.programs.restarted import RestartedServers


@pytest.mark.parametrize("together", [False, True], ids=["one server", "both servers"])
@pytest.mark.parametrize("kind", [kind for kind in POLICIES if kind != "cutoff"] + ["bsp"])
def test_the_workers_go_on_and_only_what_the_state_lacks_is_lost(kind, together):
    policy = {"bsp": Bsp(scale=SUM), **POLICIES}[kind]
    wrap = partial(RestartedServers, acknowledges=policy.acknowledges)
    for seed in range(4):
        run = Ledger(policy, seed=seed, wrap=wrap)
        run.run(0.1)
        states = [shard.state() for shard in run.shards]
        run.run(0.25 + 0.02 * seed)
        pushed = [shard.state().watermarks for shard in run.shards]
        back = [0, 1] if together else [0]
        for server in back:
            run.restart(server, states[server])
        counts = run.run().counts()
        assert counts.max() == 1
        for server, worker, iteration in (counts == 0).nonzero().tolist():
            if kind in LATE:
                continue
            # The server had it after the state, or it was on the way, or it was about to be sent.
            assert server in back
            assert states[server].watermarks[worker] < iteration
            assert iteration <= pushed[server][worker] + 2
