"""Which policy each server follows, from the start and later, as a configuration says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeAlias

from outpace.errors import ConfigError, did_you_mean
from outpace.support.checks import not_negative, require
from outpace.support.paths import with_paths
from outpace.support.units import Time, nanoseconds
from outpace.sync import (
    Apply,
    Asp,
    Bsp,
    CutOff,
    DropStragglers,
    Dsps,
    DynamicPssp,
    PartialPush,
    Peers,
    PeerStrategy,
    Policy,
    PspSampling,
    Pssp,
    Scale,
    Ssp,
    SspTable,
)
from outpace.sync.messages import server_name
from outpace.sync.python import Conditions, Followed, PythonPolicy

Sync: TypeAlias = (
    Bsp
    | Asp
    | Ssp
    | Pssp
    | DynamicPssp
    | Dsps
    | DropStragglers
    | PartialPush
    | PspSampling
    | SspTable
    | CutOff
    | PythonPolicy
    | Peers
)
Syncs: TypeAlias = Sync | tuple[Sync, ...]  # of all servers, or one for each

# Strategies that are more than a policy of servers.
EVERYWHERE: Final = {
    "ssptable": "has workers of its own",
    "cutoff": "ends an iteration for all servers at once",
}


@dataclass(frozen=True, slots=True)
class SyncChange:
    """From `at_s` (seconds of the run) on, the servers that `keys` names follow `sync`.

    Conditions stay in force. Raises ValueError if the time is negative.
    """

    at_s: float
    sync: Syncs
    keys: str = "*"

    def __post_init__(self) -> None:
        require(not_negative(self.at_s), "at_s", "from 0 to 1e9", self.at_s)

    def absolute(self, folder: Path) -> SyncChange:
        """With paths of files seen from `folder`."""
        return replace(self, sync=with_paths(self.sync, folder))


@dataclass(frozen=True, slots=True)
class Policies:
    """The part of a configuration that says what servers do; see `config.Experiment`."""

    sync: Syncs
    changes: tuple[SyncChange, ...]
    conditions: tuple[Conditions, ...]
    servers: int
    workers: int

    def initial(self) -> list[Followed]:
        """One for each server, from the start. Raises ConfigError if one cannot be made."""
        followed = [Followed(policy_of(sync)) for sync in self._spread(self.sync)]
        for each in self.conditions:
            for server in matching(each.keys, self.servers) if each.active else ():
                followed[server] = each.on(followed[server])
        return followed

    def later(self) -> list[tuple[Time, int, Policy]]:
        """(when, server, its policy from then on), in the order of time. Raises ConfigError."""
        return [
            (nanoseconds(change.at_s), server, policy_of(self._spread(change.sync)[server]))
            for change in self.changes
            for server in matching(change.keys, self.servers)
        ]

    def _spread(self, syncs: Syncs) -> Sequence[Sync]:
        """One for each server."""
        return syncs if isinstance(syncs, tuple) else (syncs,) * self.servers

    def python(self) -> list[PythonPolicy]:
        """Those that the user has written."""
        return [sync for sync in self._every() if isinstance(sync, PythonPolicy)]

    def _every(self) -> Iterator[Sync]:
        """All that are named anywhere."""
        for syncs in (self.sync, *(change.sync for change in self.changes)):
            yield from self._spread(syncs)

    # -- what may be wrong with it ---------------------------------------------------

    def contradictions(self) -> Iterator[str]:
        """What is wrong with it, key by key; no file is looked at."""
        yield from self.wrong_with("sync", self.sync)
        kinds = {sync.kind for sync in self._every()}
        for kind in kinds & EVERYWHERE.keys() if len(kinds) > 1 else ():
            yield f"sync: {kind} {EVERYWHERE[kind]}: all servers follow it, all the time"
        before = -math.inf
        for place, change in enumerate(self.changes):
            key = f"sync_changes[{place}]"
            if change.at_s < before:
                yield f"{key}.at_s: {change.at_s} goes back in time, the one before is at {before}"
            before = change.at_s
            yield from self.wrong_with(f"{key}.sync", change.sync)
            yield from self._unmatched(key, change.keys)
            if isinstance(change.sync, tuple) and change.keys != "*":
                yield f"{key}.keys: a list in sync has one for each server already"
        for place, each in enumerate(self.conditions):
            yield from self._unmatched(f"conditions[{place}]", each.keys)

    def wrong_with(self, key: str, syncs: Syncs) -> Iterator[str]:
        """Why these policies cannot be those of the servers."""
        if not isinstance(syncs, tuple):
            yield from self._wrong_with_one(key, syncs)
            return
        if len(syncs) != self.servers:
            yield f"{key}: a list of {len(syncs)} policies for {self.servers} servers"
        for place, sync in enumerate(syncs):
            yield from self._wrong_with_one(f"{key}[{place}]", sync)

    def _wrong_with_one(self, key: str, sync: Sync) -> Iterator[str]:
        if isinstance(sync, PeerStrategy):
            if sync is not self.sync:
                yield f"{key}: {without_servers(sync)}: all workers follow it, all the time"
            return
        if isinstance(sync, PythonPolicy):
            return
        if isinstance(sync, DropStragglers | PartialPush) and sync.quorum > self.workers:
            yield f"{key}.quorum: {sync.quorum} of {self.workers} workers can never have come"
        if isinstance(sync, PspSampling) and sync.sample > max(0, self.workers - 1):
            yield f"{key}.sample: {self.workers} workers have not {sync.sample} others each"
        if sync.scale is Scale.STALENESS and sync.apply is not Apply.ON_ARRIVAL:
            yield f"{key}.scale: staleness is a gradient's own: it needs apply: on-arrival"

    def _unmatched(self, key: str, keys: str) -> Iterator[str]:
        try:
            matching(keys, self.servers)
        except ConfigError as error:
            yield f"{key}.{error}"


def without_servers(sync: PeerStrategy) -> str:
    """What is the matter with it where there should be a policy of servers."""
    return f"{sync.kind} has no servers"


def policy_of(sync: Sync) -> Policy:
    """The policy itself. Raises ConfigError if there is none, or a user's own cannot be made."""
    if isinstance(sync, PeerStrategy):
        raise ConfigError(f"sync: {without_servers(sync)}")
    return sync.made() if isinstance(sync, PythonPolicy) else sync


def matching(keys: str, servers: int) -> list[int]:
    """The servers whose names this pattern matches: `server-0`, `server-[12]`, `*`.

    Raises ConfigError if there are none.
    """
    names = {server_name(server): server for server in range(servers)}
    found = [server for name, server in names.items() if fnmatchcase(name, keys)]
    if not found:
        raise ConfigError(f"keys: {keys!r} matches no server.{did_you_mean(keys, names)}")
    return found
