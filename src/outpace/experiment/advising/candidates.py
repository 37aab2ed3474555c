"""The strategies that advice chooses from, with settings that follow from the number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from outpace.config.experiment import Experiment
from outpace.config.keys import without_servers
from outpace.config.reading import experiment_from
from outpace.errors import ConfigError
from outpace.report.advice.result import ALL_REDUCE as ALL_REDUCE
from outpace.report.advice.result import BSP as BSP
from outpace.support.paths import absolute_target
from outpace.support.shares import share_of
from outpace.sync.assignment import has_servers

OWN: Final = "as configured"

# Keys that a candidate sets, so the keys of the configuration are not used.
_OF_STRATEGY: Final = ("sync", "sync_changes", "conditions", "pull", "skip")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy that advice may recommend.

    Attributes:
        name: unique name, which can be the name of a folder.
        family: the kind of method, such as `bounded staleness`.
        sync: the key `sync` of a configuration.
        beside: further keys of a configuration that belong to the strategy, such as `pull`.
    """

    name: str
    family: str
    sync: Mapping[str, Any]
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_servers(self) -> bool:
        return has_servers(self.sync)

    def applied(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration with this strategy instead of its present one.

        Without servers, the keys about servers are left out, as well as `network.delays`, which are
        for messages to and from servers, and failures of servers. Cluster files follow the same
        rule.
        """
        left = {key: value for key, value in data.items() if key not in _OF_STRATEGY}
        if not self.has_servers:
            left = without_servers(left)
            task = left.get("task")
            if not isinstance(task, Mapping) or task.get("kind") != "script":
                left.pop("forward_share", None)  # a task has it only with `overlap`
        return {**left, "sync": dict(self.sync), **self.beside}

    def experiment(
        self, data: Mapping[str, Any], source: str, folder: Path | None = None
    ) -> Experiment:
        """Return the experiment with this strategy.

        Raises:
            ConfigError: if the configuration cannot be run with this strategy.
        """
        return experiment_from(self.applied(data), f"{source}, with {self.name}", folder)


def candidates(workers: int, patience_s: float | None = None) -> list[Candidate]:
    """Return the strategies to choose from, the two references first: BSP and all-reduce.

    A quorum leaves out at least one worker. Two quorums that are the same number of workers give
    one candidate.

    Args:
        patience_s: seconds that a partial push waits after its quorum. Without a wait it is the
            same as dropping stragglers.
    """
    found: list[Candidate] = []
    for each in _all(workers, patience_s):
        if workers == 1 and (not each.has_servers or "quorum" in each.sync):
            continue
        if not any(each.sync == other.sync and each.beside == other.beside for other in found):
            found.append(each)
    return found


def first_of_families(found: Sequence[Candidate]) -> list[str]:
    """Return the first candidate of each family. These are tried before the others.

    The order matters only if time is short.
    """
    return list({each.family: each.name for each in reversed(found)}.values())


def _all(workers: int, patience_s: float | None) -> Iterator[Candidate]:
    """Yield the candidates; in each family the fastest in benchmarks/strategies comes first."""
    yield Candidate(BSP, "barrier", {"kind": "bsp"})
    yield Candidate(ALL_REDUCE, "barrier", {"kind": "ssgd"})
    yield Candidate("ASP, over staleness", "asynchronous", {"kind": "asp", "scale": "staleness"})
    yield Candidate("ASP", "asynchronous", {"kind": "asp"})
    stale = "bounded staleness"
    for bound in (4, 2, 8):
        yield Candidate(f"SSP {bound}", stale, {"kind": "ssp", "staleness": bound})
    yield Candidate("PSSP", stale, {"kind": "pssp", "staleness": 3, "block_probability": 0.3})
    yield Candidate("dynamic PSSP", stale, {"kind": "dynamic-pssp", "staleness": 3})
    yield Candidate("DSPS", stale, {"kind": "dsps", "staleness": 3})
    sampled = {"kind": "psp-sampling", "sample": min(3, max(1, workers - 1)), "staleness": 3}
    yield Candidate("PSP sampling", stale, sampled)
    drops, partly = "dropped stragglers", "partial push and pull"
    for name, percent in (("drop the last quarter", 75), ("drop the last eighth", 87.5)):
        quorum = _quorum(workers, percent)
        yield Candidate(name, drops, {"kind": "drop-stragglers", "quorum": quorum})
    wait = {} if patience_s is None else {"timeout_s": patience_s}
    push = {"kind": "partial-push", "quorum": _quorum(workers, 87.5), **wait}
    yield Candidate("partial push", partly, push)
    yield Candidate("partial push and pull", partly, push, {"pull": {"quorum_percent": 50}})
    cuts = "cut-offs"
    for decision in ("replan", "hedge"):
        yield Candidate(
            f"learned cut-offs, {decision}", cuts, {"kind": "cutoff", "decision": decision}
        )
    yield Candidate("cut-offs, last 5", cuts, {"kind": "cutoff", "model": "last-5", "warmup": 5})
    yield Candidate("HPSGD", "all-reduce beside training", {"kind": "hpsgd"})
    local = "local steps"
    for every in (4, 16):
        yield Candidate(f"Local SGD {every}", local, {"kind": "local-sgd", "every": every})
    yield Candidate("DiLoCo 8", local, {"kind": "diloco", "every": 8})
    yield Candidate("DiLoCo 16, overlap", local, {"kind": "diloco", "every": 16, "overlap": True})
    yield Candidate("gossip", "gossip", {"kind": "gossip"})


def _quorum(workers: int, percent: float) -> int:
    return min(share_of(workers, percent), workers - 1)


def usable(
    data: Mapping[str, Any],
    source: str,
    folder: Path | None = None,
    patience_s: float | None = None,
) -> tuple[list[Candidate], dict[str, str]]:
    """Return the candidates that can be used with this configuration, and why others cannot.

    The configuration's own strategy is one of them, named `as configured`, unless another candidate
    is the same.

    Args:
        source: name of the data in errors.
        folder: the folder that paths in the data are relative to.
        patience_s: see `candidates`.

    Returns:
        The candidates; and for the name of each other strategy the reason, in one line.
    """
    found: list[Candidate] = []
    refused: dict[str, str] = {}
    known = candidates(int(data["workers"]), patience_s)
    for each in [*known, *_own(data, known, folder)]:
        if each.beside.get("pull") and each.name != OWN and int(data.get("servers", 1)) < 2:
            refused[each.name] = "a partial pull needs at least 2 servers"
            continue
        try:
            each.experiment(data, source, folder)
        except ConfigError as error:
            reason = str(error).splitlines()[0]
            refused[each.name] = reason.partition(f"with {each.name}: ")[2] or reason
        else:
            found.append(each)
    return found, refused


def _own(
    data: Mapping[str, Any], known: Sequence[Candidate], folder: Path | None
) -> Iterator[Candidate]:
    """Yield the strategy of the configuration unless it is one of the known."""
    sync = data.get("sync")
    beside = {key: data[key] for key in _OF_STRATEGY if key != "sync" and data.get(key)}
    if not isinstance(sync, Mapping) or "kind" not in sync:
        return
    if isinstance(target := sync.get("target"), str):
        sync = {**sync, "target": absolute_target(target, folder or Path.cwd())}
    if not any(each.sync == sync and each.beside == beside for each in known):
        yield Candidate(OWN, "as configured", dict(sync), beside)
