"""The values that a script logs: `outpace.log(loss=..., accuracy=..., lr=...)`.

Both runtimes check the values in the worker's process with `checked`, and give each point to
`Metrics.log` in the process that keeps the results of the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Final

from outpace.errors import ConfigError

LONGEST_NAME: Final = 100  # characters
MOST_NAMES: Final = 500  # largest number of names in a run, because each is a column
_ROUNDING: Final = 1e-6  # largest excess of a mean of accuracies over 1
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
    """Return the values that a script logs, as numbers by column of metrics.parquet.

    Args:
        values: the values, by the names that the script gives. A value is a number, or a tensor or
            an array with one element. None for `loss` and `accuracy` means that they are not
            logged.
        who: name of the worker in errors.

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
    size = getattr(value, "size", None)  # the method of arrays and of tensors
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
