"""timing.parquet of real runs: its content, and that it distinguishes the causes of delays."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections import Counter
from dataclasses import replace

import pytest

from outpace.config.reading import experiment_from
from outpace.experiment.running import run
from outpace.real.net import probes
from outpace.real.node.server import Server
from outpace.real.process.local import LocalLauncher
from outpace.real.run import RealRun
from outpace.real.training import TaskTraining
from outpace.record.timing import Timing, timing_table
from outpace.record.trace import Trace, trace_table
from outpace.sync.bookkeeping.updates import Updates

pytestmark = pytest.mark.slow

MS = 1_000_000
ELEMENTS = 1000
CONFIG = {
    "task": {"kind": "quadratic", "eigenvalues": [0.5] * ELEMENTS, "noise": 0.1},
    "workers": 2,
    "servers": 1,
    "sync": {"kind": "bsp"},
    "deterministic": True,
    "stop": {"iterations": 3},
}


def serve_slowly(*arguments) -> None:
    step = Updates._step

    def slow_step(self, *given, **more):
        time.sleep(0.05)
        step(self, *given, **more)

    Updates._step = slow_step  # only the server is in this process
    server = Server(*arguments)
    server.run(server.serve())


class WithASlowServer(LocalLauncher):
    def start(self, role) -> None:
        if role.name.startswith("server"):
            role = replace(role, target=serve_slowly)
        super().start(role)


@pytest.fixture(scope="module")
def slow_server():
    """Return a run whose server takes 50 ms for an update."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "PROBE_S", 5.0)  # enough if other processes are busy
        return run(CONFIG, launcher=WithASlowServer)


def rows_of(table, what):
    return [row for row in table.to_pylist() if row["what"] == what]


def test_each_message_and_computation_has_a_row_in_order_of_time(slow_server):
    table = slow_server.timing
    keys = Counter(
        (row["what"], row["worker"], row["server"], row["iteration"]) for row in table.to_pylist()
    )
    assert set(keys.values()) == {1}
    expected = {("push", w, 0, n) for w in (0, 1) for n in range(3)}
    expected |= {("compute", w, -1, n) for w in (0, 1) for n in range(3)}
    assert {key for key in keys if key[0] != "probe"} == expected
    for row in rows_of(table, "push") + rows_of(table, "probe"):
        # One machine has one clock, so that the order holds across the processes too.
        assert row["sent_ns"] <= row["received_first_ns"] <= row["received_ns"] <= row["begun_ns"]
        assert row["begun_ns"] <= row["done_ns"] <= row["released_ns"] <= row["answer_begun_ns"]
        assert row["answer_begun_ns"] <= row["answered_ns"] <= row["answered_end_ns"]
        assert row["answered_ns"] <= row["arrived_first_ns"] <= row["arrived_ns"]
        assert row["sent_ns"] <= row["sent_end_ns"]
        assert row["received_after_ns"] <= row["received_ns"]
        assert row["arrived_after_ns"] <= row["arrived_ns"]
    for row in rows_of(table, "push"):
        assert row["sent_bytes"] == row["answer_bytes"] == 8 * ELEMENTS  # float64
        assert row["sent_ns"] >= 0
    probed = rows_of(table, "probe")
    assert {row["worker"] for row in probed} == {0, 1}
    assert all(row["sent_bytes"] == row["answer_bytes"] for row in probed)
    assert {row["sent_bytes"] for row in probed} == {1 << 10, 1 << 15, 1 << 18, 1 << 21}
    assert max(row["arrived_ns"] for row in probed) < 0  # before the run
    # 32,768 rows of 2 pairs: all of the first 16,384 iterations.


def test_the_time_of_a_slow_server_is_not_taken_for_the_network_or_the_policy(slow_server):
    pushes = rows_of(slow_server.timing, "push")
    for n in range(3):
        first, last = sorted(
            (row for row in pushes if row["iteration"] == n), key=lambda row: row["begun_ns"]
        )
        # BSP: the last push causes the update, which releases the pull of the first; the pull of
        # the last is handled after that.
        assert last["done_ns"] - last["begun_ns"] >= 50 * MS
        assert first["done_ns"] <= last["begun_ns"]
        assert first["released_ns"] == last["done_ns"] <= last["released_ns"]
    # What remains of a round trip of at least 50 ms is the network.
    network = [
        row["arrived_ns"] - row["sent_ns"] - (row["answered_ns"] - row["received_ns"])
        for row in pushes
    ]
    assert min(network) < 50 * MS


def test_without_servers_all_reduces_have_times_and_the_probe_changes_nothing():
    config = CONFIG | {"sync": {"kind": "ssgd"}}
    del config["servers"]
    probed, without = run(config), run(config, probe=False)
    digest = "parameters_digest"
    assert probed.summary[digest] == without.summary[digest]
    assert not rows_of(without.timing, "probe")
    per_worker = Counter((row["what"], row["worker"]) for row in probed.timing.to_pylist())
    assert {key: n for key, n in per_worker.items() if key[0] != "probe"} == {
        (what, worker): 3 for what in ("compute", "all-reduce") for worker in (0, 1)
    }
    assert per_worker["probe", 0] == per_worker["probe", 1] > 0
    for row in rows_of(probed.timing, "all-reduce") + rows_of(probed.timing, "probe"):
        assert row["sent_ns"] <= row["begun_ns"] <= row["done_ns"] <= row["arrived_ns"]
        assert row["server"] == -1
    for row in rows_of(probed.timing, "all-reduce"):
        assert row["sent_bytes"] >= 8 * ELEMENTS  # and a table of the members


# -- a slow link --------------------------------------------------------------------------

UP_S, DOWN_S, BYTES_PER_S = 0.020, 0.005, 100e6


def relay(there: tuple[str, int]) -> int:
    """Relay a port of this machine to another one, later; return the port.

    Bytes arrive UP_S later, at most BYTES_PER_S in a second; in the other direction DOWN_S later.
    """
    listening = socket.create_server(("127.0.0.1", 0))

    def carry(source: socket.socket, goal: socket.socket, later_s: float, rate: float) -> None:
        on_the_way: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

        def deliver() -> None:
            while True:
                due, data = on_the_way.get()
                time.sleep(max(0.0, due - time.monotonic()))
                goal.sendall(data)

        threading.Thread(target=deliver, daemon=True).start()
        free = 0.0  # when the link has passed on all before
        while data := source.recv(1 << 16):
            free = max(free, time.monotonic()) + len(data) / rate
            on_the_way.put((free + later_s, data))

    def accept() -> None:
        while True:
            near, _ = listening.accept()
            far = socket.create_connection(there)
            up, down = (near, far, UP_S, BYTES_PER_S), (far, near, DOWN_S, 1e12)
            for way in (up, down):
                threading.Thread(target=carry, args=way, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return int(listening.getsockname()[1])


def serve_behind_a_relay(*arguments) -> None:
    server = Server(*arguments)
    port = int(server.listener.endpoint.rpartition(":")[2])
    server.listener.endpoint = f"tcp://127.0.0.1:{relay(('127.0.0.1', port))}"
    server.run(server.serve())


class BehindARelay(LocalLauncher):
    def start(self, role) -> None:
        if role.name.startswith("server"):
            role = replace(role, target=serve_behind_a_relay)
        super().start(role)


def test_the_probe_tells_latency_and_bandwidth_of_both_directions(monkeypatch):
    monkeypatch.setattr(probes, "PROBE_S", 5.0)  # enough if other processes are busy
    changes = {"workers": 1, "task": {"kind": "timing", "parameters": 1000}}
    experiment = experiment_from(CONFIG | changes, "the test")
    times = timing_table()
    engine = RealRun(
        experiment,
        TaskTraining(experiment),
        Trace(trace_table()),
        print,
        launcher=BehindARelay,
        timing=Timing(times.add),
    )
    try:
        engine.run()
    finally:
        engine.close()
    found = rows_of(times.table(), "probe")
    up = {size: min(up_ns(found, size)) for size in (1 << 10, 1 << 18)}
    down = min(row["arrived_ns"] - row["answered_ns"] for row in found)
    assert up[1 << 10] >= UP_S * 1e9
    assert down >= DOWN_S * 1e9
    # 2^18 bytes take 2.6 ms at 100 MB/s.
    assert up[1 << 18] >= (UP_S + (1 << 18) / BYTES_PER_S) * 1e9
    assert down < up[1 << 10]
    # The server waited for the messages: they were read when they came.
    assert any(row["received_ns"] - row["received_after_ns"] < MS for row in found)


def up_ns(rows, size):
    return [row["received_ns"] - row["sent_ns"] for row in rows if row["sent_bytes"] == size]
