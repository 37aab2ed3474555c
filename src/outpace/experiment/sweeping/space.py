"""The space of a sweep: the keys that candidates differ in, and their values.

Each key has a list of values, or a range: `log(a, b)` and `uniform(a, b)` for numbers, `int(a, b)`
for whole numbers. A key is a dotted path of the configuration, such as `sync.staleness`; for a
script also `args.NAME`, which becomes its argument `--NAME`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from outpace.config.experiment import Experiment
from outpace.errors import ConfigError
from outpace.report.sweeps.result import Dimension
from outpace.support.yaml_files import in_one_line, parse_yaml, with_values

_RANGE: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)
_RANGES: Final = ("log", "uniform", "int")
_ARGUMENT: Final = re.compile(r"args\.([A-Za-z][\w-]*)")
_TRIES: Final = 1000  # number of combinations that are tried before a space is refused
_FORM: Final = "as in sync.staleness=1,2,4,8 or optimizer.lr=log(0.01,1)"


def dimensions_of(over: Sequence[str] | Mapping[str, Any]) -> tuple[Dimension, ...]:
    """Return the space.

    Args:
        over: texts KEY=VALUES; or VALUES by key, each a text or a list of values.

    Raises:
        ConfigError: if there is no key, or the values of a key cannot be read.
    """
    pairs = list(over.items()) if isinstance(over, Mapping) else [_pair(text) for text in over]
    if not pairs:
        raise ConfigError(f"the space is empty: name keys and their values with --over, {_FORM}")
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"--over {key} is given twice: list all its values once")
    return tuple(_dimension(key, values) for key, values in pairs)


def combinations(space: Sequence[Dimension]) -> int | None:
    """Return the number of candidates; None if they cannot be counted."""
    if any(each.law for each in space):
        return None
    return math.prod(len(each.values) for each in space)


def applied(data: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a configuration with the values of a candidate.

    Raises ConfigError if a path leads through a value, or if arguments are given to a task that is
    not a script.
    """
    arguments: list[str] = []
    pairs = []
    for key, value in values.items():
        if argument := _ARGUMENT.fullmatch(key):
            text = value if isinstance(value, str) else in_one_line(value)
            arguments += [f"--{argument[1]}", text]
        else:
            pairs.append((key.split("."), value))
    found = with_values(data, pairs)
    if arguments:
        task = found.get("task")
        if not isinstance(task, dict) or task.get("kind") != "script":
            raise ConfigError("args: only a script has arguments; name a key of the configuration")
        task["arguments"] = [*task.get("arguments", ()), *arguments]
    return found


def first_valid(
    make: Callable[[dict[str, Any]], Experiment], space: Sequence[Dimension]
) -> Experiment:
    """Return the experiment of the first combination that makes a configuration.

    The two ends of a range are tried. Other combinations may be invalid; this is then a result of
    the sweep.

    Args:
        make: returns the experiment of values by key, or raises ConfigError.

    Raises:
        ConfigError: the error of the first combination, if none of the first 1000 is valid.
    """
    refusal: ConfigError | None = None
    keys = [each.key for each in space]
    combined = itertools.product(*(each.values for each in space))
    for values in itertools.islice(combined, _TRIES):
        try:
            return make(dict(zip(keys, values, strict=True)))
        except ConfigError as error:
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _pair(text: str) -> tuple[str, str]:
    key, separator, values = text.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"--over {text!r} must have the form KEY=VALUES, {_FORM}")
    return key.strip(), values


def _dimension(key: str, given: Any) -> Dimension:
    where = f"--over {key}"
    if not all(key.split(".")):
        raise ConfigError(f"{where}: a key is a dotted path such as sync.staleness")
    if key == "seed":
        raise ConfigError(
            f"{where}: the seed is no setting to choose: run each candidate on several with --seeds"
        )
    if isinstance(given, str):
        if found := _RANGE.fullmatch(given):
            return _range(key, found[1], found[2])
        given = parse_yaml(f"[{given}]", where)
    if not isinstance(given, list | tuple):
        given = [given]
    if not given:
        raise ConfigError(f"{where} has no values: list some, {_FORM}")
    return Dimension(key, "", tuple({in_one_line(value): value for value in given}.values()))


def _range(key: str, law: str, ends: str) -> Dimension:
    where = f"--over {key}={law}({ends})"
    if law not in _RANGES:
        raise ConfigError(
            f"{where}: unknown range {law!r}. Known: log(a,b), uniform(a,b), int(a,b); or a list"
        )
    numbers = parse_yaml(f"[{ends}]", where)
    kinds = (int,) if law == "int" else (int, float)
    if len(numbers) != 2 or not all(
        type(number) in kinds and math.isfinite(number) for number in numbers
    ):
        raise ConfigError(
            f"{where}: a range has two {'whole ' if law == 'int' else ''}numbers, as in "
            f"{law}({'1,64' if law == 'int' else '0.01,1'})"
        )
    low, high = numbers
    if low >= high:
        raise ConfigError(f"{where}: the first number must be below the second")
    if law == "log" and low <= 0:
        raise ConfigError(f"{where}: the numbers of log(a,b) must be positive")
    return Dimension(key, law, tuple(numbers if law == "int" else map(float, numbers)))
