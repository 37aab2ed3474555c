"""Adds the files of a real run to the folder of a simulated run, whose laws are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from outpace.record import folder as files
from outpace.record.timing import SCHEMA

AHEAD_NS = 5 * 10**9  # of the servers' clocks
OfServer = Callable[[int], float]
SIZES = (1_000, 30_000, 250_000, 2_000_000)


def as_real(
    folder: Path,
    *,
    latency_s: OfServer,
    bandwidth: OfServer,
    push_s: float | OfServer,
    pull_s: float,
    update_s: OfServer = lambda _: 0.0,
    nodes: Mapping[str, str] | None = None,
    loopback: tuple[float, float] = (0.0, float("inf")),
) -> None:
    """Write timing.parquet for a simulated run with network.log and constant service times.

    Requests and answers come from the run, one message for a push and its pull. A probe with exact
    times precedes them.

    Args:
        latency_s, bandwidth: Values of a server's probe.
        push_s, pull_s, update_s: The run's push_time, pull_time and update_time, of a server. With
            an update, all workers push every iteration.
        nodes: The node of each worker and server, as in a run on a cluster.
        loopback: Latency and bandwidth of the probe within a node.
    """
    config = files.read_config(folder)
    place = nodes or {}

    def link(worker: int, server: int) -> tuple[float, float]:
        ends = f"worker-{worker}", f"server-{server}"
        one, other = (place.get(end, end) for end in ends)
        return loopback if one == other else (latency_s(server), bandwidth(server))

    rows = [
        _probe(worker, server, number, *link(worker, server))
        for worker in range(config["workers"])
        for server in range(config["servers"])
        for number in range(2 * len(SIZES))
    ]
    of_server = push_s if callable(push_s) else lambda _: push_s
    rows += _requests(
        folder, lambda m: round(of_server(m) * 1e9), round(pull_s * 1e9),
        lambda m: round(update_s(m) * 1e9),
    )  # fmt: skip
    _write(folder, rows, nodes)


def as_real_without_servers(
    folder: Path, *, size_bytes: int, probe_s: Callable[[int], float]
) -> None:
    """Write timing.parquet for a simulated run without servers.

    All-reduces come from the trace. In the probe before them workers join at intervals of a
    millisecond.

    Args:
        size_bytes: Size of each all-reduce.
        probe_s: Seconds of an all-reduce of the probe, by its bytes.
    """
    workers = files.read_config(folder)["workers"]
    rows = []
    for number, size in enumerate(SIZES * 2):
        last = -(10**9) * (number + 1)
        end = last + round(probe_s(size) * 1e9)
        for worker in range(workers):
            sent = last - (workers - 1 - worker) * 10**6
            rows.append(_all_reduce("probe", worker, number, size, sent, end))
    for row in pq.read_table(folder / files.TRACE).to_pylist():
        if row["event"] == "all-reduce":
            span = row["start_ns"], row["end_ns"]
            rows.append(
                _all_reduce("all-reduce", row["worker"], row["iteration"], size_bytes, *span)
            )
    _write(folder, rows)


def _all_reduce(what: str, worker: int, iteration: int, size: int, sent: int, end: int) -> Any:
    return {
        "what": what,
        "worker": worker,
        "server": -1,
        "iteration": iteration,
        "sent_bytes": size,
        "sent_ns": sent,
        "begun_ns": sent,
        "done_ns": end,
        "arrived_ns": end,
    }


def _write(
    folder: Path,
    rows: list[dict[str, Any]],
    nodes: Mapping[str, str] | None = None,
) -> None:
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / files.TIMING)
    summary = files.read_summary(folder)
    summary["wall_time_s"] = summary.pop("virtual_time_s")
    summary |= {} if nodes is None else {"nodes": nodes}
    (folder / files.SUMMARY).write_text(json.dumps(summary))


def _probe(worker: int, server: int, number: int, latency_s: float, bandwidth: float) -> Any:
    size = SIZES[number % len(SIZES)]
    transit = round((latency_s + size / bandwidth) * 1e9)
    sent = -(10**9) + 10**7 * number
    return _row("probe", worker, server, number, size, size, sent, sent + transit, 0, 0, 0, transit)


def _row(what, worker, server, iteration, size, answer, sent, received, served, held, pull, back):
    done = received + served
    begin = done + held
    answered = begin + pull
    server_side = {
        "received_after_ns": received,
        "received_first_ns": received,
        "received_ns": received,
        "begun_ns": received,
        "done_ns": done,
        "released_ns": begin,
        "answer_begun_ns": begin,
        "answered_ns": answered,
        "answered_end_ns": answered,
    }
    return {
        "what": what,
        "worker": worker,
        "server": server,
        "iteration": iteration,
        "sent_bytes": size,
        "answer_bytes": answer,
        "sent_ns": sent,
        "sent_end_ns": sent,
        "arrived_after_ns": answered + back,
        "arrived_first_ns": answered + back,
        "arrived_ns": answered + back,
        **{name: time + AHEAD_NS for name, time in server_side.items()},
    }


def _requests(
    folder: Path, push_ns: Callable[[int], int], pull_ns: int, update_ns: Callable[[int], int]
) -> list[dict[str, Any]]:
    messages = pq.read_table(folder / files.MESSAGES).to_pylist()
    trace = pq.read_table(folder / files.TRACE).to_pylist()
    settled, released = (
        {
            (row["worker"], row["shard"], row["iteration"]): row[name]
            for row in trace
            if row["event"] == event
        }
        for event, name in (("push", "start_ns"), ("pull", "end_ns"))
    )
    found: dict[tuple[int, int], dict[str, list[Any]]] = {}
    for message in messages:
        to_server = message["kind"] == "push"
        worker, server = message["sender"], message["receiver"]
        if message["kind"] == "reply":
            worker, server = server, worker
        elif not to_server:
            continue
        key = int(worker.partition("-")[2]), int(server.partition("-")[2])
        found.setdefault(key, {"push": [], "reply": []})[message["kind"]].append(message)
    last: dict[tuple[int, int], int] = {}  # when the last push of an iteration was settled
    for (_, server, n), time in settled.items():
        last[server, n] = max(time, last.get((server, n), 0))
    rows = []
    for (worker, server), each in sorted(found.items()):  # as a worker sends them
        for n, (push, reply) in enumerate(zip(each["push"], each["reply"], strict=True)):
            done = settled[worker, server, n]
            # In virtual time an update comes after the push that causes it, in a real run within
            # the push.
            update = update_ns(server) if done == last[server, n] else 0
            done += update
            row = _row(
                "push", worker, server, n, push["size_bytes"], reply["size_bytes"],
                push["requested_ns"], push["delivered_ns"], done - push["delivered_ns"],
                reply["requested_ns"] - pull_ns - done, pull_ns,
                reply["delivered_ns"] - reply["requested_ns"],
            )  # fmt: skip
            row["begun_ns"] = done - update - push_ns(server) + AHEAD_NS
            row["released_ns"] = released[worker, server, n] + update + AHEAD_NS
            rows.append(row)
    return rows
