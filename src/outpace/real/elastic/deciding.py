"""Decides when a run gets more or fewer workers and servers, as nodes come and go. Without IO.

First the places for processes are counted on the nodes that are not drained: the places that the
run's processes have there already, and the room for more. The places are divided between workers
and servers one after the other. Each goes to a kind of process that is below its lower bound, or
else to the kind that has the smaller share of its upper bound. The result is the *aim*: the numbers
of workers and servers that the cluster has places for.

- The run gets more processes if the aim is higher than the present numbers.
- It gets fewer only while a node with processes of the run is drained. Then all that are on such a
  node get places on nodes with room.
- A lost worker is given up if there is no room for its next process, and the lower bound allows it.
  It joins again when there is room.

With other numbers all processes of the run begin again from a checkpoint. The numbers never fall
because other programs use the cluster. So a process that has just joined is not removed again. The
run is asked for one change at a time, and only when nodes, places and numbers have been the same
for `settle_s`. A run that begins again on a cluster that lacks room for all does so with as many
as have a place (`fewer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from outpace.real.elastic.view import SERVER, WORKER, ClusterView, RunView
from outpace.support.words import plural
from outpace.sync.membership.events import TooFewPlaces

Bounds: TypeAlias = tuple[int, int]  # the least and the most


class Aim(NamedTuple):
    """Numbers of workers and of servers."""

    workers: int
    servers: int


def path_of_aims(
    begin: Aim,
    bounds: Mapping[str, Bounds],
    each: Mapping[str, Mapping[str, float]],
    cluster: ClusterView,
) -> Sequence[Aim]:
    """Return the numbers from `begin` up to those that fill the cluster, each with one more.

    The next one is of the kind that lacks its least, or else has the smaller share of its most;
    servers before workers. Nodes that are drained have no room.

    Args:
        begin: the processes that have a place.
        bounds: the least and the most, by kind of role.
        each: the resources of a process, by kind of role and by name of the resource.
    """
    sound = [node for node in cluster.nodes if not node.is_drained]
    free = [dict(node.free) for node in sound]
    known = {node.id for node in sound}
    kept = {kind: sum(on in known for on in nodes) for kind, nodes in cluster.kept.items()}
    count = {WORKER: begin.workers, SERVER: begin.servers}
    path = [begin]
    while True:
        wanted = [kind for kind in (SERVER, WORKER) if count[kind] < bounds[kind][1]]
        wanted.sort(key=lambda kind: _urgency(count[kind], bounds[kind]))
        kind = next((kind for kind in wanted if _takes(each[kind], free, kept, kind)), None)
        if kind is None:
            return path
        count[kind] += 1
        path.append(Aim(count[WORKER], count[SERVER]))


def _urgency(count: int, bounds: Bounds) -> tuple[bool, float]:
    return count >= bounds[0], count / bounds[1]


def _takes(
    needed: Mapping[str, float], free: Sequence[dict[str, float]], kept: dict[str, int], kind: str
) -> bool:
    """Take the place of one more process; False if there is none."""
    if kept.get(kind, 0) > 0:
        kept[kind] -= 1
        return True
    for node in free:
        if all(node.get(name, 0.0) >= much for name, much in needed.items()):
            for name, much in needed.items():
                node[name] -= much
            return True
    return False


RETRY_S: Final = 300.0  # before numbers are asked for again that had no room


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one run.

    Attributes:
        workers, servers: the lower and the upper bound; None: their number stays as it is.
        each: the resources of a process, by kind of role and by name of the resource.
        settle_s: seconds for which nodes, places and numbers must have been the same.
        gives_up: False: the run waits for a lost worker whose next process has no place.
    """

    workers: Bounds | None
    servers: Bounds | None
    each: Mapping[str, Mapping[str, float]]
    settle_s: float
    gives_up: bool = True


@dataclass(frozen=True, slots=True)
class Scale:
    """The run is to have other numbers of workers and servers.

    Attributes:
        workers, servers: the numbers to ask for; None: the number stays as it is.
        without: roles on drained nodes, which get other places.
        aim: how many workers and servers take part afterwards.
        why: the reason, in words.
    """

    workers: int | None
    servers: int | None
    without: Sequence[str]
    aim: Aim
    why: str


@dataclass(frozen=True, slots=True)
class GoWithout:
    """The run is to continue without these workers, for which there is no room. why: in words."""

    workers: Sequence[str]
    why: str


Order: TypeAlias = Scale | GoWithout


class _Seen(NamedTuple):
    """The nodes and the processes of the run at one look.

    A change is requested once all looks of `settle_s` seconds are equal.

    Attributes:
        nodes: the id of each node, and whether it is drained.
        unplaced: lost workers whose next processes have no place. If there are some, `run` and
            `aim` are left out: such a worker is given up although these change.
        run: the names of workers and servers.
        aim: the highest aim.
    """

    nodes: frozenset[tuple[str, bool]]
    unplaced: Sequence[str]
    run: Sequence[str] = ()
    aim: Aim = Aim(0, 0)


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered from one look to the next.

    Attributes:
        seen: what was seen last. since_s: when it was seen first, or when the last order was given
            if that was later.
        nodes: the names of the nodes at the last order, by id.
        failed: the aims that the run could not have, and when that was known, in seconds.
    """

    seen: _Seen | None = None
    since_s: float = 0.0
    nodes: Mapping[str, str] | None = None
    failed: Mapping[Aim, float] = field(default_factory=dict)

    def has_failed(self, order: Scale, now_s: float) -> Memory:
        """Return what to remember after the run could not have what was asked for."""
        return replace(self, failed={**self.failed, order.aim: now_s}, since_s=now_s)


def decide(
    rules: Rules, memory: Memory, cluster: ClusterView, run: RunView, now_s: float
) -> tuple[Memory, Order | None]:
    """Return what to remember, and what to ask the run for; None: nothing."""
    unplaced = [name for name in run.workers if _is_unplaced(name, cluster, run)]
    if run.is_busy and not unplaced:
        return replace(memory, since_s=now_s), None
    nodes = {node.id: node.name for node in cluster.nodes}
    states = frozenset((node.id, node.is_drained) for node in cluster.nodes)
    aims = _aims(rules, cluster, run)
    seen = _Seen(states, unplaced)
    if not unplaced:
        seen = seen._replace(run=(*run.workers, *run.servers), aim=aims[-1])
    if seen != memory.seen:
        is_same = memory.seen is not None and states == memory.seen.nodes
        failed = memory.failed if is_same else {}
        before = nodes if memory.nodes is None else memory.nodes
        return replace(memory, seen=seen, since_s=now_s, nodes=before, failed=failed), None
    if now_s - memory.since_s < rules.settle_s:
        return memory, None
    why = _Why(nodes, memory.nodes or {}, cluster)
    recent = [aim for aim, at_s in memory.failed.items() if now_s - at_s < RETRY_S]
    order: Order | None
    if unplaced:
        order = _without(rules, run, unplaced, why)
    else:
        order = _scaled(rules, cluster, run, _not_failed(aims, recent), why)
    if order is None or (isinstance(order, Scale) and order.aim in recent):
        return memory, None
    return replace(memory, since_s=now_s, nodes=nodes), order


def _is_unplaced(name: str, cluster: ClusterView, run: RunView) -> bool:
    return name in run.returning and name not in cluster.places


def _aims(rules: Rules, cluster: ClusterView, run: RunView) -> Sequence[Aim]:
    """Return the numbers that the cluster has places for; see `path_of_aims`.

    The first are the processes that have a place on a node that is not drained. The last is the
    highest aim.
    """
    sound = {node.id for node in cluster.nodes if not node.is_drained}
    workers = sum(cluster.places.get(name) in sound for name in run.workers)
    servers = sum(cluster.places.get(name) in sound for name in run.servers)
    bounds = {
        WORKER: rules.workers or (len(run.workers), len(run.workers)),
        SERVER: rules.servers or (len(run.servers), len(run.servers)),
    }
    return path_of_aims(Aim(workers, servers), bounds, rules.each, cluster)


def _not_failed(aims: Sequence[Aim], failed: Sequence[Aim]) -> Aim:
    """Return the highest of these aims that is below each aim that has failed lately.

    An aim is below another one if it has fewer workers, or fewer servers. If none is, return the
    first.
    """
    for aim in reversed(aims):
        if not any(aim.workers >= low.workers and aim.servers >= low.servers for low in failed):
            return aim
    return aims[0]


def _without(rules: Rules, run: RunView, unplaced: Sequence[str], why: _Why) -> GoWithout | None:
    """Return the order to give up lost workers without a place; None if all are needed."""
    if rules.workers is None or not rules.gives_up:
        return None
    spare = len(run.workers) - max(1, rules.workers[0])
    given_up = list(unplaced)[-min(spare, len(unplaced)) :] if spare > 0 else []
    if not given_up:
        return None
    return GoWithout(given_up, why.no_room(given_up))


def _scaled(rules: Rules, cluster: ClusterView, run: RunView, aim: Aim, why: _Why) -> Scale | None:
    """Return the order to have as many processes as the aim; None if the run has them."""
    drained = {node.id for node in cluster.nodes if node.is_drained}
    leaving = [name for name in run.servers if cluster.places.get(name) in drained]
    more_servers = 0
    if rules.servers is None or aim.servers < rules.servers[0]:
        leaving = []
    else:
        more_servers = aim.servers - len(run.servers)
        if not leaving:
            more_servers = max(0, more_servers)
    more = 0
    if rules.workers is not None:
        on_drained = sum(cluster.places.get(name) in drained for name in run.workers)
        fewest = max(-on_drained, min(0, rules.workers[0] - len(run.workers)))
        more = max(aim.workers - len(run.workers), fewest)
    workers = len(run.workers) + more if more else None
    servers = len(run.servers) + more_servers if more_servers or leaving else None
    if workers is None and servers is None:
        return None
    reached = Aim(len(run.workers) + more, len(run.servers) + more_servers)
    reason = why.scaled(more, more_servers, leaving, is_drained=bool(more < 0 or leaving))
    moving = [name for name in run.workers if cluster.places.get(name) in drained]
    return Scale(workers, servers, [*leaving, *moving], reached, reason)


class _Why(NamedTuple):
    """Makes the reasons in words.

    nodes: names of the present nodes, by id. before: the same at the last order.
    """

    nodes: Mapping[str, str]
    before: Mapping[str, str]
    cluster: ClusterView

    def scaled(
        self, workers: int, servers: int, leaving: Sequence[str], *, is_drained: bool
    ) -> str:
        """Say why there are more or fewer processes, and how many."""
        what = [_changed(servers, SERVER), _changed(workers, WORKER)]
        if leaving:
            what.append(f"without {', '.join(leaving)}")
        words = ", ".join(filter(None, what))
        if is_drained:
            drained = [node.name for node in self.cluster.nodes if node.is_drained]
            return f"{_nodes(drained)} will be removed: {words}"
        if workers <= 0 and servers <= 0:
            return words
        joined = [name for node, name in self.nodes.items() if node not in self.before]
        return f"{f'{_nodes(joined)} joined' if joined else 'there is room'}: {words}"

    def no_room(self, workers: Sequence[str]) -> str:
        """Say why the run continues without lost workers."""
        gone = [name for node, name in self.before.items() if node not in self.nodes]
        why = f"{_nodes(gone)} left, and " if gone else ""
        return f"{why}{no_room(workers)}"


def no_room(workers: Sequence[str]) -> str:
    """Say that the run continues without lost workers."""
    return f"there is no room for {', '.join(workers)}: the others continue"


def _nodes(names: Sequence[str]) -> str:
    return f"node{'s' if len(names) > 1 else ''} {', '.join(sorted(names))}"


def _changed(more: int, kind: str) -> str:
    return f"{plural(abs(more), kind)} {'more' if more > 0 else 'fewer'}" if more else ""


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
) -> TooFewPlaces | None:
    """Return the event that the run has too few places; None: it waits for more.

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
    return TooFewPlaces(
        f"there is no room for {missing}: the run begins again with {left}",
        placed[WORKER],
        placed[SERVER],
    )
