"""With how many workers a run begins again when the cluster has not room for all. Without IO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outpace.real.coordinator.scaling import BeginWith
from outpace.real.elastic.deciding import Rules
from outpace.real.elastic.view import ClusterView
from outpace.support.words import plural


@dataclass(frozen=True, slots=True)
class Waiting:
    """The processes without a place, and since when they are the same."""

    unplaced: Sequence[str] = ()
    since_s: float = 0.0


def seen(waiting: Waiting, cluster: ClusterView, names: Sequence[str], now_s: float) -> Waiting:
    """Return what to remember until the next look. names: all that need a place."""
    unplaced = [name for name in names if name not in cluster.places]
    return waiting if unplaced == waiting.unplaced else Waiting(unplaced, now_s)


def fewer(
    rules: Rules,
    waiting: Waiting,
    cluster: ClusterView,
    workers: Sequence[str],
    servers: Sequence[str],
    now_s: float,
) -> BeginWith | None:
    """Return that the run is to begin with as many workers as have a place; None: it waits.

    It waits if all have a place, if fewer than the least have, if a server has none, and until
    what is seen has been the same for `settle_s`.
    """
    left = len(workers) - len(waiting.unplaced)
    if rules.workers is None or not waiting.unplaced or left < rules.workers[0]:
        return None
    if now_s - waiting.since_s < rules.settle_s:
        return None
    if not all(name in cluster.places for name in servers):
        return None
    names = ", ".join(waiting.unplaced)
    return BeginWith(
        f"there is no room for {names}: the run begins again with {plural(left, 'worker')}", left
    )
