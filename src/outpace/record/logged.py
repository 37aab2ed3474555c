"""The values that a script logs: `outpace.log(loss=..., accuracy=..., lr=...)`.

Both runtimes check the values in the worker's process with `checked`, and give each point to
`Metrics.log` in the process that keeps the results of the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from outpace.errors import ConfigError
from outpace.record.curves import NO_WORKER, QUANTITIES, on_curve

LONGEST_NAME: Final = 100  # characters
MOST_NAMES: Final = 500  # in a run: each is a column
_ROWS: Final = 8192  # kept as Python objects before they become a table
_ROUNDING: Final = 1e-6  # by which a mean of accuracies may be above 1
_COLUMN_OF: Final = {"loss": "train_loss"}
_TAKEN: Final = {  # columns of metrics.parquet that a script cannot set
    "train_loss": "log it as `loss`",
    "batch_loss": "log it as `loss`",
    "time_s": "every row has it already",
    "updates": "every row has it already",
    "gradients": "every row has it already",
    "worker": "every row has it already",
    "iteration": "every row has it already",
}


def checked(values: Mapping[str, Any], who: str) -> dict[str, float]:
    """Return the values that a script logs as numbers, by their column in metrics.parquet.

    Args:
        values: by the name that the script gives. A value is a number, or a tensor or an array
            with one element. None for `loss` and `accuracy` means that they are not logged.
        who: the worker, as errors name it.

    Raises:
        ConfigError: if a name cannot be a column, or a value is not a number. Values that are not
            finite are accepted; only an accuracy must be in [0, 1] or NaN.
    """
    found = {}
    for name, value in values.items():
        if value is None and name in ("loss", "accuracy"):
            continue
        why = _why_not_a_name(name)
        if why:
            raise ConfigError(f"outpace.log of {who}: {name!r} cannot be logged: {why}")
        number = _number(name, value, who)
        if name == "accuracy" and not (math.isnan(number) or 0 <= number <= 1 + _ROUNDING):
            raise ConfigError(
                f"outpace.log of {who}: accuracy must be from 0 to 1, not {number:g}; divide a "
                "percentage by 100"
            )
        found[_COLUMN_OF.get(name, name)] = number
    return found


def _why_not_a_name(name: str) -> str:
    if name in _TAKEN:
        return f"metrics.parquet has a column of this name; {_TAKEN[name]}"
    if not name.strip() or not name.isprintable():
        return "a name needs printable characters"
    if len(name) > LONGEST_NAME:
        return f"a name has at most {LONGEST_NAME} characters"
    return ""


def _number(name: str, value: Any, who: str) -> float:
    size = getattr(value, "size", None)  # of arrays; a method of tensors
    elements = value.numel() if hasattr(value, "numel") else size if hasattr(value, "item") else 1
    if elements != 1:
        raise ConfigError(
            f"outpace.log of {who}: {name} has {elements} elements, and one number is needed, such "
            f"as {name}.mean()"
        )
    number = value.item() if hasattr(value, "item") else value
    if not isinstance(number, Real):
        raise ConfigError(
            f"outpace.log of {who}: {name} must be a number, or a tensor with one element, "
            f"not {type(value).__name__}"
        )
    return float(number)


class Points:
    """The points that scripts have logged, in the order in which they came.

    Memory: about 100 bytes a point.
    """

    def __init__(self) -> None:
        self._rows: list[Mapping[str, Any]] = []
        self._chunks: list[pa.Table] = []
        self._names: dict[str, None] = {}
        self._leader: dict[str, int] = {}  # by quantity: the worker of its curve

    def __len__(self) -> int:
        return len(self._rows) + sum(map(len, self._chunks))

    def add(self, row: Mapping[str, Any], values: Mapping[str, float], known: pa.Schema) -> None:
        """Add a point.

        Args:
            row: columns that every row has.
            values: what was logged, by column.
            known: the columns that are no names of scalars.

        Raises:
            ConfigError: if there are too many different names.
        """
        for name in values:
            if name not in self._names and name not in known.names:
                self._names[name] = None
        if len(self._names) > MOST_NAMES:
            raise ConfigError(
                f"outpace.log: more than {MOST_NAMES} different names were logged, among them "
                f"{', '.join(list(self._names)[-2:])}; use the same names in every call"
            )
        self._rows.append({**values, **row})
        if len(self._rows) >= _ROWS:
            self._chunks.append(self._table(known))
            self._rows.clear()

    def take_up(self, points: pa.Table, known: pa.Schema) -> None:
        """Begin with the points of an earlier session of the run; known: as for `add`."""
        self._names = {name: None for name in points.column_names if name not in known.names}
        self._rows.clear()
        self._leader.clear()
        for name in QUANTITIES:
            finite = points.filter(pc.fill_null(pc.is_finite(points[name]), False))
            if len(finite):
                self._leader[name] = pc.min(finite["worker"]).as_py()
        self._chunks = [points] if len(points) else []

    def on_curve(self, worker: int, values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
        """Yield the values that are on the curve of the run; see `outpace.record.curves`."""
        for name, value in values.items():
            known = np.array([math.isfinite(value)])
            leader = self._leader.get(name, NO_WORKER)
            counts, self._leader[name] = on_curve(np.array([worker]), known, leader)
            if counts[0]:
                yield name, value

    def tables(self, known: pa.Schema) -> list[pa.Table]:
        """Return the points; a table has a column for each scalar that was logged by then."""
        return [*self._chunks, *([self._table(known)] if self._rows else [])]

    def _table(self, known: pa.Schema) -> pa.Table:
        schema = known
        for name in self._names:
            schema = schema.append(pa.field(name, pa.float64()))
        return pa.Table.from_pylist(self._rows, schema=schema)
