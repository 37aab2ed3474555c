"""The process of a worker without servers."""

from __future__ import annotations

from threading import Thread

import pytest
import torch

import outpace
from outpace.blocks.block import Pieces, whole
from outpace.engine.scripts.buffers import AveragedBuffers
from outpace.engine.scripts.model import ScriptModel
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import JoinRun, ProcessDone, StopRun
from outpace.real.net.report_messages import ProcessFailed
from outpace.real.net.transport import Handlers, Session
from outpace.real.net.zeromq.transport import ZeroMQTransport
from outpace.real.node.member import COORDINATOR, CoordinatorLink
from outpace.real.node.script.parameters import BesideModel, ScriptTail
from outpace.real.node.task import run_task
from outpace.sync.messages import WireMessage


def test_a_worker_that_is_stopped_before_the_run_begins_ends_without_an_error():
    experiment = outpace.experiment_from(
        {
            "task": {"kind": "timing", "parameters": 10},
            "workers": 2,
            "sync": {"kind": "ssgd"},
            "stop": {"iterations": 1},
        },
        "the test",
    )
    said: list[WireMessage] = []

    def take(name: str, message: WireMessage) -> None:
        said.append(message)
        if isinstance(message, JoinRun):
            listener.send(name, StopRun("the user wants it", early=True))

    session, clock = Session(1, 0, 10.0, None), RealClock()
    transport = ZeroMQTransport(COORDINATOR, session, clock, said.append)
    listener = transport.listen(
        LOOPBACK, {"worker-0": ""}, Handlers(lambda *_: None, take, lambda _: None)
    )
    link = CoordinatorLink("worker-0", listener.endpoint, "", session)
    worker = Thread(target=run_task, args=(link, 0, experiment), daemon=True)
    worker.start()
    while ProcessDone() not in said:
        clock(clock.now + 10_000_000)
    worker.join(0.05)
    assert worker.is_alive()  # what it sent may not have arrived: only the coordinator knows
    listener.send("worker-0", ProcessDone())
    while worker.is_alive():
        clock(clock.now + 10_000_000)
    listener.close()
    transport.close()
    assert [message for message in said if isinstance(message, ProcessFailed)] == []
    assert said[-1] == ProcessDone()


def test_the_replica_of_a_script_takes_the_steps_of_a_copy_of_its_adamw():
    """By hand, as in tests/simulation/collective/test_peers.py, with worker 0's gradients."""
    model = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    settings = {"lr": 0.5, "betas": (0.5, 0.5), "weight_decay": 0.1}
    script = ScriptModel(model, torch.optim.AdamW(model.parameters(), **settings))
    tail = ScriptTail(script, AveragedBuffers(model, averaged=False), settings=True)
    common = BesideModel(script, tail, script.flat(), changed=lambda gradients: None)
    replica = common.replica()
    assert not replica.takes_plain_steps

    def behind(gradient):
        """Return the gradient as a worker sends it."""
        model.weight.grad = torch.full((1, 1), gradient, dtype=torch.float64)
        return tail.behind(Pieces([model.weight.grad.reshape(-1)]))

    read = []
    for iteration in (1, 2):
        replica.step(behind(4.0), iteration)
        read.append(model.weight.item())
    assert read == pytest.approx([-0.5, -0.5 * 0.95 - 0.5])
    total = whole(behind(2.0)).mul_(2)
    common.commit(total, 2, 2)
    replica.follow()
    replica.show()
    assert model.weight.item() == pytest.approx(-0.5)
    assert {name: value.item() for name, value in common.state()[0].items()} == {
        "step": 1,
        "exp_avg": 1,
        "exp_avg_sq": 2,
    }
    replica.step(behind(-1.0), 5)
    assert model.weight.item() == pytest.approx(-0.5 * 0.95)
    total = whole(behind(2.0)).mul_(6)
    common.commit(total, 6, 6, 3.0)
    assert common.read().item() == pytest.approx(-0.5 * 0.85 - 1.5)
    assert script.optimizer.param_groups[0]["lr"] == 0.5
