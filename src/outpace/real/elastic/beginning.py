"""With how many processes a run begins again if the cluster lacks room. Without IO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outpace.real.coordinator.scaling import BeginWith
from outpace.real.elastic.deciding import Rules
from outpace.real.elastic.view import SERVER, WORKER, ClusterView
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
    """Return that the run is to begin with as many processes as have a place; None: it waits.

    It waits if all have a place, if of one kind fewer than the least have, and until what is seen
    has been the same for `settle_s`.
    """
    if not waiting.unplaced or now_s - waiting.since_s < rules.settle_s:
        return None
    placed: dict[str, int | None] = {WORKER: None, SERVER: None}
    for kind, names, bounds in (
        (WORKER, workers, rules.workers),
        (SERVER, servers, rules.servers),
    ):
        count = sum(name in cluster.places for name in names)
        if count == len(names):
            continue
        if bounds is None or count < bounds[0]:
            return None
        placed[kind] = count
    missing = ", ".join(waiting.unplaced)
    left = " and ".join(plural(n, kind) for kind, n in placed.items() if n is not None)
    return BeginWith(
        f"there is no room for {missing}: the run begins again with {left}",
        placed[WORKER],
        placed[SERVER],
    )
