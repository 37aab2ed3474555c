"""The process of a worker without servers."""

from __future__ import annotations

from threading import Thread

import outpace
from outpace.real.net.addresses import LOOPBACK
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import JoinRun, ProcessDone, StopRun
from outpace.real.net.report_messages import ProcessFailed
from outpace.real.net.transport import Handlers, Session, new_keys
from outpace.real.net.zeromq.transport import ZeroMQTransport
from outpace.real.node.member import COORDINATOR, CoordinatorLink
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

    mine, theirs, clock = new_keys(), new_keys(), RealClock()
    transport = ZeroMQTransport(COORDINATOR, Session(1, 0, 10.0, mine), clock, said.append)
    listener = transport.listen(
        LOOPBACK, {"worker-0": theirs.public}, Handlers(lambda *_: None, take, lambda _: None)
    )
    session = Session(1, 0, 10.0, theirs)
    link = CoordinatorLink("worker-0", listener.endpoint, mine.public, session)
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
