"""What the strategy of a recorded run did: its summary says so, also of a user's own strategy.

The summary of an older run, and a folder without one, do not. Then the classes of the library are
asked, which need torch; reports of other runs do without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outpace.sync.strategy import Strategy


def is_lockstep(config: Mapping[str, Any], summary: Mapping[str, Any]) -> bool:
    """True if every worker waits until an iteration is over on all servers, or for all workers."""
    if isinstance(said := summary.get("lockstep"), bool):
        return said
    skip = config.get("skip")
    return (
        all(_declares(strategy, "lockstep") for strategy in _strategies(config))
        and config.get("pull") is None
        and not (isinstance(skip, Mapping) and skip.get("pull"))
        and not config.get("conditions")
    )


def has_exchanges(config: Mapping[str, Any], summary: Mapping[str, Any]) -> bool:
    """True if workers averaged in pairs."""
    if isinstance(said := summary.get("exchanges"), bool):
        return said
    return any(_declares(strategy, "exchanges") for strategy in _strategies(config))


def has_cut_offs(config: Mapping[str, Any], summary: Mapping[str, Any]) -> bool:
    """True if a scheduler ended iterations, so that workers stopped computing."""
    if "cut_offs" in summary or summary.get("status") == "complete":
        return "cut_offs" in summary
    from outpace.sync import Policy

    return any(
        issubclass(strategy, Policy) and strategy.cut_off is not Policy.cut_off
        for strategy in _strategies(config)
    )


def in_lockstep() -> list[str]:
    """Return the kinds of the library's policies that are in lockstep."""
    from outpace.sync.strategies import POLICIES

    return [kind for kind, policy in POLICIES.items() if _declares(policy, "lockstep")]


def _kinds(config: Mapping[str, Any]) -> list[str]:
    """Return the kinds of all strategies that any server followed at any time."""
    said = config.get("sync_changes")
    changes = [
        each for each in (said if isinstance(said, list) else ()) if isinstance(each, Mapping)
    ]
    parts = [config.get("sync"), *(change.get("sync") for change in changes)]
    each = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    return [str(one.get("kind")) if isinstance(one, Mapping) else "" for one in each]


def _declares(strategy: type[Strategy], trait: str) -> bool:
    """True if the whole class has this trait; a property depends on the options."""
    return getattr(strategy, trait) is True


def _strategies(config: Mapping[str, Any]) -> Iterator[type[Strategy]]:
    """Yield the class of each strategy; of an unknown one that which promises nothing."""
    from outpace.sync.strategies import STRATEGIES
    from outpace.sync.strategy import Strategy

    for kind in _kinds(config):
        yield STRATEGIES.get(kind, Strategy)
