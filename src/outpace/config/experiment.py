"""What a run is made of, and its YAML.

`Experiment` is the whole configuration as frozen dataclasses. `experiment_from` makes
one from plain data: keys and kinds are checked against the dataclasses (so that a
misspelt one gets its nearest neighbour), types by pydantic, ranges by the dataclasses'
own `__post_init__`, which also guard an Experiment written in Python. All problems are
said at once, so far as they can be seen at once.
"""

from __future__ import annotations

import dataclasses
import json
import reprlib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import Any, Final, Literal

import pydantic

from outpace.blocks.slicing import Slicing, slices_of
from outpace.cluster import ComputeLaw, Machines, NetworkLaw, ServiceLaw
from outpace.config.executors import Auto, Executor
from outpace.errors import ConfigError, did_you_mean
from outpace.optim import Sgd, UpdaterKind
from outpace.optim.python import PythonOptimizer
from outpace.support.checks import noted, positive, require
from outpace.support.paths import with_paths
from outpace.sync import CutOff, PeerStrategy, SspTable
from outpace.sync.assignment import Policies, Sync, SyncChange, Syncs, without_servers
from outpace.sync.programs.partial_pull import PartialPull
from outpace.sync.python import Conditions
from outpace.tasks import Quadratic, Script, TaskKind, Timing

_MACHINES: Final = ("servers", "workers")
_OF_SERVERS: Final = (
    "servers",
    "sync_changes",
    "conditions",
    "colocate",
    "pull",
    "barrier",
    "push_time",
    "pull_time",
    "slicing",
)
_NODES: Final = 10**6  # at most so many of either


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
        if self.iterations is not None:
            require(self.iterations > 0, "iterations", "at least 1", self.iterations)
        if self.virtual_time_s is not None:
            require(
                positive(self.virtual_time_s),
                "virtual_time_s",
                "a positive number of seconds, at most 1e9",
                self.virtual_time_s,
            )
        if self.target_accuracy is not None:
            require(
                0 < self.target_accuracy <= 1,
                "target_accuracy",
                "in (0, 1]",
                self.target_accuracy,
            )


@dataclass(frozen=True, slots=True)
class Target:
    """The quality that a comparison is judged by: exactly one of the two is given.

    A run reaches it when an evaluation shows it first. The run goes on;
    `Stop.target_accuracy` ends one.

    Args:
        accuracy: lowest test accuracy that reaches the target, in (0, 1].
        loss: highest training loss that reaches the target.
    """

    accuracy: float | None = None
    loss: float | None = None

    def __post_init__(self) -> None:
        if (self.accuracy is None) == (self.loss is None):
            raise ValueError("needs exactly one of accuracy and loss")
        if self.accuracy is not None:
            require(0 < self.accuracy <= 1, "accuracy", "in (0, 1]", self.accuracy)
        if self.loss is not None:
            require(positive(self.loss), "loss", "positive, at most 1e9", self.loss)


@dataclass(frozen=True, slots=True)
class Evaluate:
    """When to evaluate beside the end of the run: every so many versions of shard 0 and/or
    seconds of virtual time, from the start on. It takes no virtual time.

    samples: on how many at most, evenly spaced, of the training data (never more than 1,000)
    and of the test data (all, if nothing is said).
    """

    every_updates: int | None = None
    every_s: float | None = None
    samples: int | None = None

    def __post_init__(self) -> None:
        if self.samples is not None:
            require(self.samples > 0, "samples", "at least 1", self.samples)
        if self.every_updates is not None:
            require(self.every_updates > 0, "every_updates", "at least 1", self.every_updates)
        if self.every_s is not None:
            require(1e-6 <= self.every_s <= 1e9, "every_s", "from 1e-6 to 1e9", self.every_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One run. Raises ValueError where values contradict each other."""

    task: TaskKind
    workers: int
    sync: Syncs
    stop: Stop = field(default_factory=Stop)  # a script ends by itself
    compute: ComputeLaw | None = None  # None: what it really takes; not in virtual time
    seed: int = 0
    servers: int = 1
    network: NetworkLaw | None = None  # None: instantaneous
    sync_changes: tuple[SyncChange, ...] = ()
    conditions: tuple[Conditions, ...] = ()
    colocate: bool = False  # server m runs on worker m's machine; in virtual time
    pull: PartialPull | None = None  # None: a worker waits for all servers
    # global: a worker pulls when the scheduler lets it, which sees whole iterations (PS-Lite)
    barrier: Literal["per-server", "global"] = "per-server"
    push_time: ServiceLaw | None = None  # what a server needs per push; in virtual time
    pull_time: ServiceLaw | None = None  # and per pull; None: nothing
    slicing: Slicing = Slicing.EVEN
    optimizer: UpdaterKind | PythonOptimizer = field(default_factory=Sgd)
    batch_size: int = 32  # per worker
    evaluate: Evaluate = field(default_factory=Evaluate)
    target: Target | None = None  # what the report measures the time to
    executor: Executor = field(default_factory=Auto)  # of virtual time
    # Of real runs; virtual time is always deterministic, and stops.
    deterministic: bool = False  # add gradients up in the order of workers, not of arrival
    non_finite: Literal["refuse", "stop"] = "refuse"  # gradients; refused: that push abstains

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**63, "seed", "from 0 to 2^63 − 1", self.seed)
        limits = (("batch_size", 10**9, "1e9"), *((k, _NODES, "1,000,000") for k in _MACHINES))
        for key, most, words in limits:
            count = getattr(self, key)
            require(count > 0, key, "at least 1", count)
            require(count <= most, key, f"at most {words}", count)
        contradictions = list(self._contradictions())
        if contradictions:
            raise ValueError("\n".join(contradictions))

    @property
    def machines(self) -> Machines:
        """Where its nodes run."""
        servers = 0 if self.peers is not None else self.servers
        return Machines(self.workers, servers, self.colocate, scheduler=self.barrier == "global")

    @property
    def peers(self) -> PeerStrategy | None:
        """The strategy, if it is one without servers."""
        return self.sync if isinstance(self.sync, PeerStrategy) else None

    @property
    def accuracies(self) -> dict[str, float]:
        """The accuracies to be reached, by their keys."""
        goal = None if self.target is None else self.target.accuracy
        keys = {"stop.target_accuracy": self.stop.target_accuracy, "target.accuracy": goal}
        return {key: accuracy for key, accuracy in keys.items() if accuracy is not None}

    @property
    def policies(self) -> Policies:
        """What its servers follow."""
        return Policies(self.sync, self.sync_changes, self.conditions, self.servers, self.workers)

    @property
    def servers_in_run(self) -> int:
        """How many there are: none if workers average among themselves."""
        return 0 if self.peers is not None else self.servers

    def slices(self, layers: Sequence[int]) -> list[slice]:
        """What each server owns of the flat vector of parameter tensors of these sizes.

        Raises ConfigError if one would own nothing.
        """
        return slices_of(self.slicing, layers, self.servers)

    def optimizer_in_run(self, samples: int | None) -> UpdaterKind | PythonOptimizer:
        """The optimizer for a task of so many training samples, or None: ready for servers.

        Raises ConfigError if its schedule counts in epochs and there are none.
        """
        optimizer = self.optimizer
        if isinstance(optimizer, PythonOptimizer):
            return optimizer
        return optimizer.in_run(self.workers, self.batch_size, samples)

    def _left_to_the_script(self) -> Iterator[str]:
        """Keys without meaning for it."""
        if self.batch_size != 32:
            yield "batch_size: a script makes its own batches"
        if self.evaluate != Evaluate() or self.stop.target_accuracy is not None:
            yield "evaluate, stop.target_accuracy: a script evaluates its model itself"
        if self.target is not None:
            yield "target: a script evaluates its model itself"
        if not isinstance(self.optimizer, PythonOptimizer) and self.optimizer != Sgd():
            yield "optimizer: a script brings its own (only kind: python can replace it)"

    def _against_the_programs(self) -> Iterator[str]:
        """What workers and servers cannot do at the same time."""
        if isinstance(self.sync, SspTable):
            own = "sync.kind: ssptable has workers of its own, which pull what is too old"
            if self.pull is not None:
                yield f"pull: {own}"
            if self.barrier == "global":
                yield f"barrier: {own}"
            if any(each.push is not None for each in self.conditions):
                yield f"conditions: push: {own}, and count on everybody's pushes"
        if isinstance(self.sync, CutOff):
            whole = "sync.kind: cutoff ends iterations for all servers at once"
            if self.barrier == "global":
                yield f"barrier: {whole}: leave it out"
            if self.conditions:
                yield f"conditions: {whole}: no server has one of its own"
        if self.barrier != "global":
            return
        if self.pull is not None:
            yield (
                "pull: with barrier: global a worker pulls when all servers have all it waits "
                "for, and they answer at once: leave out one of the two"
            )
        one = "with barrier: global the scheduler follows one policy, for all and all the time"
        if isinstance(self.sync, tuple):
            yield f"sync: a list: {one}"
        for key in ("sync_changes", "conditions"):
            if getattr(self, key):
                yield f"{key}: {one}"
        if getattr(self.sync, "uses_significance", False):
            yield "sync.alpha: with barrier: global nobody who decides sees a gradient"

    def _without_servers(self, sync: PeerStrategy) -> Iterator[str]:
        """Keys that speak of servers, where there are none."""
        none = without_servers(sync)
        usual = {entry.name: entry.default for entry in dataclasses.fields(self)}
        for key in _OF_SERVERS:
            if getattr(self, key) != usual[key]:
                yield f"{key}: {none}: leave it out"
        if self.network is not None and self.network.delays:
            yield f"network.delays: {none}, and so no push, pull or reply that could be late"
        if self.workers == 1:
            yield f"workers: {sync.kind} is for at least 2, who average among themselves"
        if sync.uses_replica and not isinstance(self.optimizer, Sgd):
            plain = f"the replica of {sync.kind} takes plain steps"
            yield f"optimizer: {plain}: use kind: sgd, not {self.optimizer.kind}"

    def _contradictions(self) -> Iterator[str]:
        if self.stop == Stop() and not isinstance(self.task, Script):
            yield "stop: needs at least one of iterations, virtual_time_s, target_accuracy"
        if isinstance(self.task, Script):
            yield from self._left_to_the_script()
        if isinstance(self.task, Timing | Quadratic):
            for key in self.accuracies:
                yield f"{key}: the task {self.task.kind!r} has no accuracy"
        if isinstance(self.task, Timing) and self.target is not None and self.target.loss:
            yield "target.loss: the task 'timing' has no loss"
        only_target = (
            self.stop.target_accuracy is not None
            and self.stop.iterations is None
            and self.stop.virtual_time_s is None
        )
        if only_target and self.evaluate == Evaluate():
            yield (
                "stop.target_accuracy alone would never be looked at: "
                "set evaluate.every_updates or another stop"
            )
        if not all(0 < getattr(self, key) <= _NODES for key in _MACHINES):
            return
        yield from self.policies.contradictions()
        slow = () if self.compute is None else self.compute.slow
        for worker in (worker for period in slow for worker in period.workers):
            if worker >= self.workers:
                yield f"compute.slow.workers must be from 0 to {self.workers - 1}, not {worker}"
        if self.peers is not None:
            yield from self._without_servers(self.peers)
        yield from self._against_the_programs()
        for key in ("push_time", "pull_time"):
            law = getattr(self, key)
            if law is not None and (law.worker_cv or law.slow):
                yield f"{key}: worker_cv and slow are of workers; a server has neither"
        if self.network is not None:
            try:
                self.network.require_machines(self.machines)
            except ValueError as error:
                yield str(error)


def experiment_from(data: Mapping[str, Any], source: str, folder: Path | None = None) -> Experiment:
    """Check plain data (as from YAML) and make the Experiment.

    `source` names the data in errors; the file of a `python` task is looked up in
    `folder`, by default the current one. Raises ConfigError listing all that is wrong.
    """
    problems: list[str] = []
    experiment: Any = _UNREADABLE
    try:
        whole = json.loads(json.dumps(_whole(data)))
        experiment = _read(Experiment, whole, "", problems)
    except (RecursionError, ValueError):
        problems = ["it is nested too deeply, or contains itself"]
    except TypeError as error:
        problems = [f"not plain data: {error}"]
    if problems:
        raise ConfigError("\n".join(f"{source}: {problem}" for problem in problems))
    try:
        return _with_absolute_paths(experiment, folder or Path.cwd())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{source}: a path in it is none: {error}") from error


def sync_from(data: Any, source: str) -> Sync:
    """One policy from plain data. Raises ConfigError listing all that is wrong."""
    problems: list[str] = []
    sync: Any = _read(Sync, _whole(data), "sync", problems)
    if problems:
        raise ConfigError("\n".join(f"{source}: {problem}" for problem in problems))
    found: Sync = sync
    return found


def to_plain(experiment: Experiment) -> dict[str, Any]:
    """The configuration as plain data with all defaults filled in."""
    found: dict[str, Any] = plain(dataclasses.asdict(experiment))
    return found


def plain(value: Any) -> Any:
    """The same as dictionaries, lists, text and numbers."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
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


def _with_absolute_paths(experiment: Experiment, folder: Path) -> Experiment:
    parts = {
        entry.name: getattr(experiment, entry.name) for entry in dataclasses.fields(experiment)
    }
    return dataclasses.replace(
        experiment, **{name: with_paths(part, folder) for name, part in parts.items()}
    )


# -- reading -------------------------------------------------------------------------
# Each function adds to the problems, and gives _UNREADABLE if there is no value at all.

_UNREADABLE: Final = object()
_WORDS: Final = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping",
}


def _read(
    expected: Any, data: Any, path: str, problems: list[str], usual: type | None = None
) -> Any:
    """The value of this type that plain data stands for; of kind `usual` if it names none."""
    arguments = typing.get_args(expected)
    options = _options(expected)
    several = [member for member in arguments if typing.get_origin(member) is tuple]
    if options and several and isinstance(data, list):  # one of these, or a list of them
        return _read(several[0], data, path, problems)
    if options:
        if data is None and types.NoneType in arguments:
            return None
        if not isinstance(data, dict):
            problems.append(f"{path or 'the configuration'} must be a mapping, not {_short(data)}")
            return _UNREADABLE
        option = usual if usual in options and "kind" not in data else None
        option = option or _chosen(options, data, path, problems)
        return _UNREADABLE if option is None else _made(option, data, path, problems)
    if isinstance(data, list) and arguments and _options(arguments[0]):
        entries = [
            _read(arguments[0], entry, f"{path}[{place}]", problems)
            for place, entry in enumerate(data)
        ]
        return _UNREADABLE if _UNREADABLE in entries else tuple(entries)
    if isinstance(data, dict) and arguments and _options(arguments[-1]):
        named = {
            key: _read(arguments[-1], entry, f"{path}.{key}", problems)
            for key, entry in data.items()
        }
        return _UNREADABLE if _UNREADABLE in named.values() else named
    try:
        return _adapter(_narrowed(expected, data)).validate_json(json.dumps(data), strict=True)
    except pydantic.ValidationError as error:
        problems += _in_words(error.errors(), path)
        return _UNREADABLE


def _narrowed(expected: Any, data: Any) -> Any:
    """Of lists and other things, those that the data may be: errors speak of these alone."""
    if typing.get_origin(expected) not in (typing.Union, types.UnionType):
        return expected
    members = typing.get_args(expected)
    fit = [m for m in members if (typing.get_origin(m) is tuple) == isinstance(data, list)]
    return reduce(or_, fit) if fit else expected


def _options(expected: Any) -> list[type]:
    """The dataclasses that a value of this type may be."""
    union = typing.get_origin(expected) in (typing.Union, types.UnionType)
    members = typing.get_args(expected) if union else (expected,)
    return [m for m in members if isinstance(m, type) and dataclasses.is_dataclass(m)]


def _chosen(options: list[type], data: Any, path: str, problems: list[str]) -> type | None:
    """The option of the kind that is asked for."""
    if len(options) == 1:
        return options[0]
    kinds = {_kind(option): option for option in options}
    if "kind" not in data:
        problems.append(f"{path}.kind is missing. Known: {', '.join(sorted(kinds))}.")
        return None
    kind = data["kind"]
    if isinstance(kind, str) and kind in kinds:
        return kinds[kind]
    problems.append(f"{path}.kind: unknown kind {_short(kind)}.{did_you_mean(kind, kinds)}")
    return None


def _kind(option: type) -> str:
    (default,) = (f.default for f in dataclasses.fields(option) if f.name == "kind")
    return str(default)


def _made(option: type, data: dict[str, Any], path: str, problems: list[str]) -> Any:
    """The dataclass of these keys; its own checks are told of what can be read."""
    hints = typing.get_type_hints(option)
    prefix = f"{path}." if path else ""
    values = {}
    usual = {entry.name: type(_default(entry)) for entry in dataclasses.fields(option)}
    for key, entry in data.items():
        if key in usual:  # not in hints: those of class variables are nobody's keys
            values[key] = _read(hints[key], entry, prefix + key, problems, usual[key])
        else:
            problems.append(f"{prefix}{key}: unknown key.{did_you_mean(key, usual)}")
    for entry in dataclasses.fields(option):
        if entry.name not in data and _default(entry) is _UNREADABLE:
            problems.append(f"{prefix}{entry.name} is missing")
            values[entry.name] = _UNREADABLE
    whole = _UNREADABLE not in values.values()
    made: Any = _UNREADABLE
    with noted() as complaints:
        try:
            if whole:
                made = option(**values)
            else:
                _check_what_there_is(option, values)
        except ValueError as error:  # in what there is, it may contradict what is not
            complaints += str(error).split("\n") if whole else ()
        except Exception:
            if whole and not complaints:  # else it stumbled over what is reported anyway
                raise
    for complaint in complaints:
        separator = "" if not path else ": " if complaint.startswith("needs") else "."
        problems.append(f"{path}{separator}{complaint}")
    return made


def _check_what_there_is(option: type, values: dict[str, Any]) -> None:
    """Run its checks with defaults for what cannot be read, up to the use of what has none."""
    partial: Any = object.__new__(option)
    for entry in dataclasses.fields(option):
        value = values.get(entry.name, _UNREADABLE)
        value = _default(entry) if value is _UNREADABLE else value
        if value is not _UNREADABLE:
            object.__setattr__(partial, entry.name, value)
    partial.__post_init__()


def _default(entry: dataclasses.Field[Any]) -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory()
    return _UNREADABLE if entry.default is dataclasses.MISSING else entry.default


@cache
def _adapter(expected: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(expected)


def _in_words(found: Sequence[Any], path: str) -> list[str]:
    """A line for each place; of what may be one thing or another, one for both."""
    if len(found) > 1 and all(problem["input"] == found[0]["input"] for problem in found):
        either = " or ".join(_must(problem).removeprefix("must be ") for problem in found)
        return [f"{path} must be {either}, not {_short(found[0]['input'])}"]
    lines = []
    for problem in found:
        place = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in problem["loc"])
        lines.append(f"{path}{place} {_must(problem)}, not {_short(problem['input'])}")
    return lines


def _must(problem: Any) -> str:
    if problem["type"] in ("enum", "literal_error"):
        return f"must be {problem['ctx']['expected']}"
    return _WORDS.get(problem["type"], str(problem["msg"]))


def _short(value: Any) -> str:
    return reprlib.repr(value)
