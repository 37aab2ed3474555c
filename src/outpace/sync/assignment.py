"""Assigns policies to servers, from the start and at later times of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final, TypeAlias, get_args

import pydantic

from outpace.blocks.narrowing import Wire
from outpace.errors import ConfigError, did_you_mean
from outpace.support.checks import KINDS, NotNegative, check_ranges
from outpace.support.paths import with_paths
from outpace.support.units import Time, nanoseconds
from outpace.sync import Peers, PeerStrategy, Policy, ServerPolicy
from outpace.sync.conditions import Conditioned, Conditions
from outpace.sync.messages import server_name
from outpace.sync.python import PythonStrategy
from outpace.sync.strategies import STRATEGIES
from outpace.sync.strategy import Strategy

Sync: TypeAlias = ServerPolicy | PythonStrategy | Peers
_Kinds: TypeAlias = Annotated[Sync, KINDS]
Syncs: TypeAlias = Annotated[  # for all servers, or one per server
    Annotated[_Kinds, pydantic.Tag("all")] | Annotated[tuple[_Kinds, ...], pydantic.Tag("each")],
    pydantic.Discriminator(lambda value: "each" if isinstance(value, list | tuple) else "all"),
]
ONE_WIRE: Final = (
    "workers send to all servers in one precision during the whole run: write the same wire in "
    "every policy, also in sync_changes"
)


@dataclass(frozen=True, slots=True)
class SyncChange:
    """Changes the policy of servers to `sync`, `at_s` seconds into the run.

    `keys` matches the names of the servers. The servers keep their conditions. Raises ValueError if
    the time is negative.

    Attributes:
        at_s: seconds into the run.
        sync: strategy after the change.
        keys: pattern of the names of the servers that change.
    """

    at_s: NotNegative
    sync: Syncs
    keys: str = "*"

    def __post_init__(self) -> None:
        check_ranges(self)

    def for_workers(self, workers: int) -> SyncChange:
        """Return this change with numbers in place of shares of the workers."""
        sync = for_workers(self.sync, workers)
        return self if sync == self.sync else replace(self, sync=sync)


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies and conditions of all servers in a run; see `config.Experiment`."""

    sync: Syncs
    changes: tuple[SyncChange, ...]
    conditions: tuple[Conditions, ...]
    servers: int
    workers: int

    @property
    def strategy(self) -> Policy:
        """The policy that determines the programs of the run. Raises ConfigError."""
        return traits_of(self._spread(self.sync)[0])

    def initial(self) -> list[Conditioned]:
        """Return each server's policy, with conditions, at the start. Raises ConfigError."""
        followed = [Conditioned(policy_of(sync)) for sync in self._spread(self.sync)]
        for each in self.conditions:
            for server in matching(each.keys, self.servers) if each.active else ():
                followed[server] = each.on(followed[server])
        return followed

    def later(self) -> list[tuple[Time, int, Policy]]:
        """Return the policy changes as (time, server, policy), by time. Raises ConfigError."""
        return [
            (nanoseconds(change.at_s), server, policy_of(self._spread(change.sync)[server]))
            for change in self.changes
            for server in matching(change.keys, self.servers)
        ]

    def python(self) -> list[PythonStrategy]:
        """Return the strategies that come from the user's files."""
        return [sync for sync in self._every() if isinstance(sync, PythonStrategy)]

    def _spread(self, syncs: Syncs) -> Sequence[Sync]:
        """Return one strategy per server."""
        return syncs if isinstance(syncs, tuple) else (syncs,) * self.servers

    def refused_keys(self, load: bool) -> dict[str, str]:
        """Return the configuration keys that the strategies refuse, each with the reason."""
        found: dict[str, str] = {}
        for place, strategy in enumerate(self.strategies(load)):
            # otherwise the change to this strategy is refused
            if strategy.has_servers or not place:
                found |= strategy.refused_keys(self.workers)
        return found

    def strategies(self, load: bool) -> list[Strategy]:
        """Return all strategies that are followed at any time. load: as for `contradictions`."""
        return [
            strategy_of(sync)
            for sync in self._every()
            if load or not isinstance(sync, PythonStrategy)
        ]

    def _every(self) -> Iterator[Sync]:
        for syncs in (self.sync, *(change.sync for change in self.changes)):
            yield from self._spread(syncs)

    # -- contradictions --------------------------------------------------------------

    def contradictions(self, load: bool) -> Iterator[str]:
        """Yield the contradictions in the configuration, each with its key.

        load: True to load the user's files, which may raise ConfigError; otherwise strategies
        in these files are not checked.
        """
        yield from self.problems("sync", self.sync, load)
        kinds = {sync.kind for sync in self._every()}
        if len(kinds) > 1:
            reasons = [strategy.everywhere for strategy in self.strategies(load)]
            for reason in dict.fromkeys(filter(None, reasons)):
                yield f"sync: {reason}: all servers must follow it during the whole run"
        yield from self._of_wires(load)
        before = -math.inf
        for place, change in enumerate(self.changes):
            key = f"sync_changes[{place}]"
            if change.at_s < before:
                yield (
                    f"{key}.at_s: {change.at_s} goes back in time, the previous change is "
                    f"at {before}"
                )
            before = change.at_s
            yield from self.problems(f"{key}.sync", change.sync, load)
            yield from self._unmatched(key, change.keys)
            if isinstance(change.sync, tuple) and change.keys != "*":
                yield f"{key}.keys: a list in sync has one for each server already"
        for place, each in enumerate(self.conditions):
            yield from self._unmatched(f"conditions[{place}]", each.keys)

    def _of_wires(self, load: bool) -> Iterator[str]:
        wires = {strategy.wire for strategy in self.strategies(load)}
        for unknown in sorted(map(repr, wires.difference(get_args(Wire)))):
            yield f"sync.wire: it must be 'full' or 'bf16', not {unknown}"
        if len(wires) > 1:
            yield f"sync.wire: {ONE_WIRE}"

    def problems(self, key: str, syncs: Syncs, load: bool = True) -> Iterator[str]:
        """Yield the reasons why servers cannot follow these policies."""
        if isinstance(syncs, tuple) and len(syncs) != self.servers:
            yield (
                f"{key}: a list of {len(syncs)} policies for {self.servers} servers: a list "
                "has one policy for each server; servers=N or --servers N sets how many there are"
            )
        for place, sync in _by_place(key, syncs):
            if isinstance(sync, PythonStrategy) and not load:
                continue
            strategy = strategy_of(sync)
            for problem in strategy.problems(self.workers):
                yield f"{place}.{problem}"
            if not strategy.has_servers and sync is not self.sync:
                everywhere = "all workers must follow it during the whole run"
                yield f"{place}: {without_servers(strategy)}: {everywhere}"

    def warnings(self) -> Iterator[str]:
        """Yield the warnings of the policies, each with its key. Loads the user's files."""
        changes = {f"sync_changes[{n}].sync": each.sync for n, each in enumerate(self.changes)}
        for key, syncs in {"sync": self.sync, **changes}.items():
            for place, sync in _by_place(key, syncs):
                for warning in strategy_of(sync).warnings():
                    yield f"{place}.{warning}"

    def _unmatched(self, key: str, keys: str) -> Iterator[str]:
        try:
            matching(keys, self.servers)
        except ConfigError as error:
            yield f"{key}.{error}"


def _by_place(key: str, syncs: Syncs) -> Iterator[tuple[str, Sync]]:
    """Yield each strategy with the place in the configuration where it is written."""
    if isinstance(syncs, tuple):
        for place, sync in enumerate(syncs):
            yield f"{key}[{place}]", sync
    else:
        yield key, syncs


def for_workers(syncs: Syncs, workers: int) -> Syncs:
    """Return the strategies with numbers in place of shares of the workers."""
    if isinstance(syncs, tuple):
        return tuple(for_workers_of(sync, workers) for sync in syncs)
    return for_workers_of(syncs, workers)


def for_workers_of(sync: Sync, workers: int) -> Sync:
    """Return one strategy as `for_workers` does; a user's strategy reads the shares itself."""
    return sync if isinstance(sync, PythonStrategy) else sync.for_workers(workers)


def without_servers(sync: Strategy) -> str:
    """Return the error message for a strategy without servers in the place of a policy."""
    return f"{sync.kind} has no servers"


def strategy_of(sync: Sync) -> Policy | PeerStrategy:
    """Return the strategy, loaded if it is a user's. Raises ConfigError if loading fails."""
    return sync.strategy if isinstance(sync, PythonStrategy) else sync


def described(sync: object, folder: Path | None = None) -> Strategy | type[Strategy] | None:
    """Return a strategy, or its class, from plain data, for its traits; None if it cannot be read.

    A user's strategy is loaded and constructed; of the library's strategies the class is enough.

    Args:
        folder: the folder that the path of a user's strategy is relative to; None: the current one.
    """
    kind = sync.get("kind") if isinstance(sync, Mapping) else None
    if not isinstance(sync, Mapping) or kind != "python":
        return STRATEGIES.get(kind) if isinstance(kind, str) else None
    try:
        mine = PythonStrategy(sync.get("target", ""), sync.get("arguments", {}))
        return strategy_of(with_paths(mine, folder or Path.cwd()))
    except (AttributeError, ConfigError, TypeError, ValueError):
        return None  # the error is raised when the configuration is read


def has_servers(sync: object, folder: Path | None = None) -> bool:
    """True if a strategy in plain data has servers or cannot be read; see `described`."""
    strategy = described(sync, folder)
    return strategy is None or strategy.has_servers


def traits_of(sync: Sync) -> Policy:
    """Return the policy itself, for questions about its traits.

    Raises ConfigError if the strategy has no servers.
    """
    strategy = strategy_of(sync)
    if isinstance(strategy, PeerStrategy):
        raise ConfigError(f"sync: {without_servers(strategy)}")
    return strategy


def policy_of(sync: Sync) -> Policy:
    """Return the policy that a server follows; the answers of a user's policy are checked.

    Raises ConfigError.
    """
    policy = traits_of(sync)
    return sync.policy if isinstance(sync, PythonStrategy) else policy


def matching(keys: str, servers: int) -> list[int]:
    """Return the servers whose names match a pattern: `server-0`, `server-[12]`, `*`.

    Raises ConfigError if no server matches.
    """
    names = {server_name(server): server for server in range(servers)}
    found = [server for name, server in names.items() if fnmatchcase(name, keys)]
    if not found:
        raise ConfigError(f"keys: {keys!r} matches no server.{did_you_mean(keys, names)}")
    return found
