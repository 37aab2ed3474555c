"""A log of every message: requested, started, delivered."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from outpace.simulation.network.links import Transfer


class MessageLog:
    """Keeps a row per delivered message. It grows with the run: for looking closely."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    def __call__(self, transfer: Transfer) -> None:
        self._rows.append(
            {
                "sender": transfer.sender.name,
                "receiver": transfer.receiver.name,
                "kind": type(transfer.message).__name__.lower(),
                "size_bytes": transfer.size_bytes,
                "requested_ns": transfer.requested,
                "started_ns": transfer.started,
                "delivered_ns": transfer.delivered,
            }
        )

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(
            self._rows,
            pa.schema(
                [("sender", pa.string()), ("receiver", pa.string()), ("kind", pa.string())]
                + [
                    (name, pa.int64())
                    for name in ("size_bytes", "requested_ns", "started_ns", "delivered_ns")
                ]
            ),
        )
