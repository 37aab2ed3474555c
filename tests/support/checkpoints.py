"""States of shards for tests of checkpoints, and a comparison of states."""

import json
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from outpace.blocks.block import Pieces
from outpace.record.checkpoints import Checkpoints, Index, write_shard, write_tensors
from outpace.record.totals import Totals
from outpace.sync.checkpoint.state import ShardState

METRICS = pa.table({"time_s": [0.0, 1.5]})


def shard_state(**changes: Any) -> ShardState:
    """Return a state of server 1 with three parameters and two workers, changed as asked."""
    usual = {
        "shard": 1,
        "clock": 5,
        "version": 11,
        "watermarks": (4, 6),
        "gone": (0,),
        "pushes": 12,
        "furthest": 5.5,
        "mixed": 2,
        "parameters": torch.tensor([1.0, -2.0, 3.0]),
        "optimizer": {},
        "pending": (),
    }
    return ShardState(**{**usual, **changes})


def same(one: Any, other: Any) -> bool:
    """True if two states, or parts of states, are equal bit by bit; whole or in pieces."""
    if isinstance(one, torch.Tensor | Pieces) and isinstance(other, torch.Tensor | Pieces):
        first, second = (x.whole() if isinstance(x, Pieces) else x for x in (one, other))
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    numbers = type(one) in (int, float) and type(other) in (int, float)
    if type(one) is not type(other) and not numbers:
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return bool(one == other)


def save(
    checkpoints: Checkpoints,
    number: int,
    states: list[ShardState],
    layout: str = "",
    layers: tuple[int, ...] = (),
    others: dict[str, Any] | None = None,
    own: tuple[ShardState, ...] = (),
    elements: int | None = None,
    of_script: bool = False,
) -> Index:
    """Write a whole checkpoint of these shards; others: tensors of further files.

    own: states of workers without servers. elements: size of the model, if the first shard has
    more.
    """
    folder = checkpoints.begin(number)
    written = [write_shard(folder, state) for state in states]
    of_workers = [write_shard(folder, each, name=f"worker-{each.shard}") for each in own]
    written_too = [part for _, part in of_workers]
    parts = [write_tensors(folder / name, each) for name, each in (others or {}).items()]
    bounds = [0] if elements is None else [0, elements]
    for state in states if elements is None else ():
        itemsize = getattr(state.parameters, "dtype", torch.float32).itemsize
        bounds.append(bounds[-1] + state.parameters.nbytes // itemsize)
    index = Index(
        number=number,
        now=number * 10**9,
        updates=states[0].version,
        parts=(*(part for _, part in written), *written_too, *parts),
        shards=tuple(record for record, _ in written),
        totals=Totals(iterations={0: 5, 1: 7}, loss_sum=float("nan")),
        bounds=tuple(bounds),
        of_script=of_script,
        own=tuple(record for record, _ in of_workers),
        layers=layers or (bounds[-1],),
        layout=layout,
    )
    checkpoints.commit(index, METRICS)
    return index


def index_of(folder: Path) -> dict[str, Any]:
    """Return the content of index.json in the folder of a checkpoint, as plain data."""
    plain: dict[str, Any] = json.loads((folder / "index.json").read_text())["index"]
    return plain


def index_text(plain: Any) -> str:
    """Return the content of index.json, with a checksum that is right."""
    raw = json.dumps(plain)
    return f'{{"crc32": {zlib.crc32(raw.encode())}, "index": {raw}}}'


def rewrite_index(folder: Path, **changes: Any) -> None:
    """Change values in index.json, with a correct checksum."""
    (folder / "index.json").write_text(index_text(index_of(folder) | changes))


class Keeper:
    """Keeps checkpoints in a folder, and the reasons why some were abandoned."""

    def __init__(self, run: Path) -> None:
        self.files, self.is_full = Checkpoints(run), False
        self.abandoned: list[tuple[int, str]] = []

    @property
    def last(self) -> int:
        return max(self.files.numbers(), default=0)

    @property
    def folder(self) -> Path | None:
        return self.files.path(self.last) if self.last else None

    def begin(self, number: int) -> Path:
        if self.is_full:
            raise OSError("no space")
        return self.files.begin(number)

    def commit(self, taken: Index, metrics: pa.Table) -> None:
        self.files.commit(taken, metrics)

    def abandon(self, number: int, why: str = "") -> None:
        self.abandoned.append((number, why))
        self.files.abandon(number)


def shard_states(checkpoint, slices, workers):
    """Return the state of each server of a run that is resumed with these slices."""
    return [checkpoint.shard_state(shard, slices, workers) for shard in range(len(slices))]
