"""A log of every message: requested, started, delivered."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from outpace.simulation.network.links import Transfer

_NAMES = [(name, pa.string()) for name in ("sender", "receiver", "kind")]
_NUMBERS = ("size_bytes", "requested_ns", "started_ns", "delivered_ns")
_SCHEMA = pa.schema(_NAMES + [(name, pa.int64()) for name in _NUMBERS])


class MessageLog:
    """Keeps a row per delivered message, so its memory grows with the run."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def __call__(self, transfer: Transfer) -> None:
        self._rows.append(
            (
                transfer.sender.name,
                transfer.receiver.name,
                type(transfer.message).__name__.lower(),
                transfer.size_bytes,
                transfer.requested,
                transfer.started,
                transfer.delivered,
            )
        )

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(
            [dict(zip(_SCHEMA.names, row, strict=True)) for row in self._rows], _SCHEMA
        )
