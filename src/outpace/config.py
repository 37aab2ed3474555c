"""What a run is made of, and its YAML.

`Experiment` is the whole configuration as frozen dataclasses. `experiment_from` makes
one from plain data: keys and kinds are checked against the dataclasses (so that a
misspelt one gets its nearest neighbour), types by pydantic, ranges by the dataclasses'
own `__post_init__`, which also guard an Experiment written in Python.
"""

from __future__ import annotations

import dataclasses
import json
import reprlib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import pydantic

from outpace.checks import positive, require
from outpace.cluster import ComputeLaw, NetworkLaw
from outpace.errors import ConfigError, did_you_mean
from outpace.messages import server_name, worker_name
from outpace.sync import Asp, Bsp, Ssp
from outpace.tasks import PythonTask, TaskKind, Timing, absolute_target
from outpace.updaters import Sgd

_BY_KIND = pydantic.Field(discriminator="kind")
Sync: TypeAlias = Bsp | Asp | Ssp


@dataclass(frozen=True, slots=True)
class Stop:
    """When the run ends: whichever comes first of those given.

    iterations: a worker leaves instead of starting this iteration. virtual_time_s: the
    run ends then. target_accuracy: it ends when an evaluation reaches it.
    """

    iterations: int | None = None
    virtual_time_s: float | None = None
    target_accuracy: float | None = None

    def __post_init__(self) -> None:
        limits = (self.iterations, self.virtual_time_s, self.target_accuracy)
        if all(limit is None for limit in limits):
            raise ValueError("needs at least one of iterations, virtual_time_s, target_accuracy")
        if self.iterations is not None:
            require(self.iterations > 0, "iterations", "at least 1", self.iterations)
        if self.virtual_time_s is not None:
            require(
                positive(self.virtual_time_s),
                "virtual_time_s", "a positive number of seconds, at most 1e9", self.virtual_time_s,
            )  # fmt: skip
        if self.target_accuracy is not None:
            require(
                0 < self.target_accuracy <= 1,
                "target_accuracy", "in (0, 1]", self.target_accuracy,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Evaluate:
    """When to evaluate beside the end of the run: every so many versions of shard 0 and/or
    seconds of virtual time, from the start on. It takes no virtual time."""

    every_updates: int | None = None
    every_s: float | None = None

    def __post_init__(self) -> None:
        if self.every_updates is not None:
            require(self.every_updates > 0, "every_updates", "at least 1", self.every_updates)
        if self.every_s is not None:
            require(1e-6 <= self.every_s <= 1e9, "every_s", "from 1e-6 to 1e9", self.every_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One run. Raises ValueError where values contradict each other."""

    task: Annotated[TaskKind, _BY_KIND]
    workers: int
    compute: Annotated[ComputeLaw, _BY_KIND]
    sync: Annotated[Sync, _BY_KIND]
    stop: Stop
    seed: int = 0
    servers: int = 1
    network: NetworkLaw | None = None  # None: instantaneous
    optimizer: Sgd = field(default_factory=Sgd)
    batch_size: int = 32  # per worker
    evaluate: Evaluate = field(default_factory=Evaluate)

    def __post_init__(self) -> None:
        for key in ("workers", "servers"):
            count = getattr(self, key)
            require(count > 0, key, "at least 1", count)
            require(count <= 10**6, key, "at most 1,000,000", count)
        require(self.batch_size > 0, "batch_size", "at least 1", self.batch_size)
        require(self.batch_size <= 10**9, "batch_size", "at most 1e9", self.batch_size)
        require(0 <= self.seed < 2**63, "seed", "from 0 to 2^63 − 1", self.seed)
        if self.network is not None:
            names = [worker_name(n) for n in range(self.workers)]
            self.network.require_nodes(names + [server_name(m) for m in range(self.servers)])
        for period in self.compute.slow:
            for worker in period.workers:
                require(
                    worker < self.workers,
                    "compute.slow.workers", f"from 0 to {self.workers - 1}", worker,
                )  # fmt: skip
        target = self.stop.target_accuracy
        if target is not None and isinstance(self.task, Timing):
            raise ValueError("stop.target_accuracy: the task 'timing' has no accuracy")
        only_target = self.stop.iterations is None and self.stop.virtual_time_s is None
        if only_target and self.evaluate == Evaluate():
            raise ValueError(
                "stop.target_accuracy alone would never be looked at: "
                "set evaluate.every_updates or another stop"
            )


_ADAPTER = pydantic.TypeAdapter(Experiment)


def experiment_from(data: Mapping[str, Any], source: str, folder: Path | None = None) -> Experiment:
    """Check plain data (as from YAML) and make the Experiment.

    `source` names the data in errors; the file of a `python` task is looked up in
    `folder`, by default the current one. Raises ConfigError listing all that is wrong.
    """
    problems = []
    try:
        problems = list(_unknown_keys(Experiment, data, ""))
        text = "" if problems else json.dumps(_whole(data))
    except (RecursionError, ValueError):
        problems = ["it is nested too deeply, or contains itself"]
    except TypeError as error:
        problems = [f"not plain data: {error}"]
    if not problems:
        try:
            experiment = _ADAPTER.validate_json(text, strict=True)
            return _with_absolute_target(experiment, folder or Path.cwd())
        except pydantic.ValidationError as error:
            problems = [_in_words(problem, data) for problem in error.errors()]
    raise ConfigError("\n".join(f"{source}: {problem}" for problem in problems))


def to_plain(experiment: Experiment) -> dict[str, Any]:
    """The configuration as plain data with all defaults filled in."""
    plain: dict[str, Any] = _plain(dataclasses.asdict(experiment))
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value.value if isinstance(value, Enum) else value


def _whole(value: Any) -> Any:
    """1e6 is a float in YAML, and may be given where a whole number is wanted."""
    if isinstance(value, Mapping):
        return {k: v if k == "arguments" else _whole(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(entry) for entry in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value


def _with_absolute_target(experiment: Experiment, folder: Path) -> Experiment:
    task = experiment.task
    if not isinstance(task, PythonTask):
        return experiment
    target = absolute_target(task.target, folder)
    return dataclasses.replace(experiment, task=dataclasses.replace(task, target=target))


# -- keys and kinds ----------------------------------------------------------------


def _unknown_keys(expected: Any, data: Any, path: str) -> Iterator[str]:
    """Complaints about keys and kinds that the dataclasses do not have."""
    if typing.get_origin(expected) is Annotated:
        expected = typing.get_args(expected)[0]
    options = _options(expected)
    if options and not isinstance(data, Mapping):
        if data is not None or types.NoneType not in typing.get_args(expected):
            yield f"{path or 'the configuration'} must be a mapping, not {_short(data)}"
        return
    if len(options) > 1:
        kinds = {_kind(option): option for option in options}
        if "kind" not in data:
            yield f"{path}.kind is missing. Known: {', '.join(sorted(kinds))}."
            return
        kind = data["kind"]
        if not isinstance(kind, str) or kind not in kinds:
            yield f"{path}.kind: unknown kind {_short(kind)}.{did_you_mean(kind, kinds)}"
            return
        options = [kinds[data["kind"]]]
    if options:
        hints = typing.get_type_hints(options[0], include_extras=True)
        names = [entry.name for entry in dataclasses.fields(options[0])]
        for key, value in data.items():
            where = f"{path}.{key}" if path else str(key)
            if key not in names:
                yield f"{where}: unknown key.{did_you_mean(key, names)}"
            else:
                yield from _unknown_keys(hints[key], value, where)
        return
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin is tuple and isinstance(data, list):
        for place, entry in enumerate(data):
            yield from _unknown_keys(arguments[0], entry, f"{path}[{place}]")
    elif origin is dict and isinstance(data, Mapping):
        for key, entry in data.items():
            yield from _unknown_keys(arguments[1], entry, f"{path}.{key}")


def _options(expected: Any) -> list[type]:
    """The dataclasses that a value of this type may be."""
    members = typing.get_args(expected) if _is_union(expected) else (expected,)
    return [m for m in members if isinstance(m, type) and dataclasses.is_dataclass(m)]


def _is_union(expected: Any) -> bool:
    return typing.get_origin(expected) in (typing.Union, types.UnionType)


def _kind(option: type) -> str:
    (default,) = (f.default for f in dataclasses.fields(option) if f.name == "kind")
    return str(default)


# -- types and ranges ----------------------------------------------------------------

_WORDS = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
    "dataclass_type": "must be a mapping",
}


def _short(value: Any) -> str:
    return reprlib.repr(value)


def _in_words(problem: Any, data: Any) -> str:
    path, value = _locate(problem["loc"], data)
    kind = problem["type"]
    if kind == "missing":
        return f"{path} is missing"
    if kind == "value_error":
        message = str(problem["ctx"]["error"])
        separator = "" if not path else ": " if message.startswith("needs") else "."
        return f"{path}{separator}{message}"
    if kind in ("enum", "literal_error"):
        return f"{path} must be {problem['ctx']['expected']}, not {_short(value)}"
    return f"{path or 'the configuration'} {_WORDS.get(kind, problem['msg'])}, not {_short(value)}"


def _locate(location: tuple[int | str, ...], data: Any) -> tuple[str, Any]:
    """The dotted path and the value there; pydantic's own steps (the kinds) are left out."""
    path = ""
    for step in location[:-1]:
        if isinstance(data, Mapping) and step in data:
            data, path = data[step], f"{path}.{step}"
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data, path = data[step], f"{path}[{step}]"
    for step in location[-1:]:
        if isinstance(data, Mapping):
            known = step in data or step not in {data.get("kind")}
            data, path = data.get(step), f"{path}.{step}" if known else path
        elif isinstance(data, list) and isinstance(step, int):
            data, path = data[step], f"{path}[{step}]"
    return path.removeprefix("."), data
