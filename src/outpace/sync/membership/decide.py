"""Decides about the consequences of an event in a run, without any IO; `table` has the theory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from outpace.errors import ProtocolError
from outpace.support.units import Time, nanoseconds, seconds
from outpace.support.words import plural
from outpace.sync.membership.events import (
    AllBegin,
    AskedToScale,
    AttemptFailed,
    BeginAgain,
    CheckpointComplete,
    Confirmed,
    DeadlinePassed,
    EndRun,
    Event,
    Finished,
    Kill,
    Loss,
    NoPlaces,
    Order,
    PlacesFound,
    ProcessEnded,
    ProcessesLost,
    Removed,
    Replace,
    Reserve,
    Rules,
    Save,
    Scaled,
    Start,
    TooFewPlaces,
    TrainingBegan,
    Unchanged,
    WorkerBegan,
    WorkerTrained,
)
from outpace.sync.membership.table import NEXT, Change, Phase, Role, Table
from outpace.sync.messages import server_name, worker_name

Decision: TypeAlias = tuple[Table, Sequence[Order]]

DEATHS: Final = 5  # deaths of a worker without a finished iteration, before the run may end
# times that all begin again without a checkpoint in between, before the run ends
MOST_LOSSES: Final = 5
_MOST_EARLY: Final = 3  # losses in a row before the training begins


class Membership:
    """The processes of a run: holds the present table during all attempts.

    Args:
        schedulers, checkpoint: see `Table`.
    """

    def __init__(self, rules: Rules, schedulers: Sequence[str] = (), checkpoint: int = 0) -> None:
        self.table = Table(rules, tuple(schedulers), checkpoint=checkpoint)

    def take(self, event: Event, now: Time) -> Sequence[Order]:
        """Return the orders that follow from an event. Raises ProtocolError; see `decide`."""
        self.table, orders = decide(self.table, event, now)
        return orders


def decide(table: Table, event: Event, now: Time) -> Decision:
    """Return the table after an event, and the orders that follow.

    now: does not decrease from one event of an attempt to the next.

    Raises:
        ProtocolError: the event cannot happen now.
    """
    match event:
        case AllBegin():
            return _all_begin(table, event), []
        case TrainingBegan():
            return _training_began(table)
        case CheckpointComplete(number):
            return _checkpoint_complete(replace(table, checkpoint=number))
        case AttemptFailed(why):
            return _taken_back(table, why) if _is_tried(table) else (table, [EndRun(why)])
        case ProcessesLost():
            return _lost(table, event, now)
        case ProcessEnded(worker):
            return _fenced(table, replace(table.workers[worker], has_ended=True), now)
        case Confirmed():
            return _confirmed(table, event, now)
        case WorkerBegan(worker):
            begun = table.workers[worker].then("began")
            return table.having(replace(begun, deadline=None)), []
        case WorkerTrained(worker):
            return table.having(replace(table.workers[worker], has_trained=True)), []
        case Finished(name):
            return _finished(table, table.role(name)), []
        case DeadlinePassed():
            return _deadline_passed(table, now)
        case AskedToScale():
            return _asked_to_scale(table, event)
        case PlacesFound():
            change = _change_that_waits_for(table, "places")
            return replace(table, change=replace(change, waits_for="checkpoint")), [Save()]
        case NoPlaces(why):
            change = _change_that_waits_for(table, "places")
            return replace(table, change=None), [_unchanged(change, why)]
        case TooFewPlaces():
            return _too_few_places(table, event)


# -- attempts ------------------------------------------------------------------------------


def _all_begin(table: Table, event: AllBegin) -> Table:
    workers = (Role(worker_name(number), number) for number in range(event.workers))
    servers = (Role(server_name(number), number) for number in range(event.servers))
    return replace(
        table,
        workers=tuple(each.then("gone") if each.number in event.gone else each for each in workers),
        servers=tuple(servers),
        checkpoint=event.checkpoint,
        attempt=table.attempt + 1,
        has_begun=False,
        generation=0,
    )


def _training_began(table: Table) -> Decision:
    change = table.change
    scaled = [] if change is None else [Scaled(change.asker, change.before, change.at)]
    return replace(table, has_begun=True, early=0, change=None), scaled


def _checkpoint_complete(table: Table) -> Decision:
    """Let all begin again from the new checkpoint if a change of numbers waits for it."""
    change = table.change
    if change is None or change.waits_for != "checkpoint":
        return table, []
    tried = replace(table, change=replace(change, waits_for="training"))
    return tried, [_begin_again(table, change.workers, change.servers)]


def _begin_again(table: Table, workers: int, servers: int) -> BeginAgain:
    numbers = in_words(workers, servers)
    why = f"the run begins again with {numbers}, from checkpoint {table.checkpoint}"
    return BeginAgain(why, workers, servers, table.checkpoint)


# -- losses --------------------------------------------------------------------------------


def _lost(table: Table, event: ProcessesLost, now: Time) -> Decision:
    losses, is_ending = event.losses, event.is_ending
    workers = {worker.name: worker for worker in table.workers}
    together = () if is_ending else [loss.name for loss in losses if loss.name in workers]
    ways = {
        loss: _follows(table, workers.get(loss.name), loss, is_ending, together) for loss in losses
    }
    if set(ways.values()) == {"alone"}:
        orders: list[Order] = []
        for loss in losses:
            number = workers[loss.name].number
            table, more = _lost_alone(table, table.workers[number], loss, is_ending, now)
            orders += more
        return table, orders
    needed = [loss for loss in losses if ways[loss] in ("all", "anew")]
    first = (needed or losses)[0]
    why = str(first)
    if _is_tried(table):
        return _taken_back(table, why)
    if not needed:
        is_explained = first.name in workers and not (first.has_exited or is_ending)
        return table, [EndRun(why + table.rules.no_start * is_explained)]
    if all(ways[loss] == "anew" for loss in needed):
        return _all_anew(table, why, needed)
    return _all_again(table, why, needed, {loss.name for loss in losses})


def _follows(
    table: Table, worker: Role | None, loss: Loss, is_ending: bool, together: Sequence[str]
) -> Literal["alone", "anew", "all", "end"]:
    """Return the kind of consequence of a loss, without regard to other losses at the same time.

    Args:
        worker: the lost worker; None: a server is lost.
        together: names of the workers that are lost at the same time.

    Returns:
        alone: the others continue, with or without another process in its place. anew: all begin
            again as at the start of the run. all: all begin again from the last checkpoint. end:
            the run ends.
    """
    rules = table.rules
    on_loss = rules.on_server_loss if worker is None else rules.on_loss
    exits_again = loss.has_exited and on_loss == "restart"
    if not table.has_begun:
        if rules.can_begin_again and not loss.has_exited and on_loss != "stop":
            return "anew"
    elif worker is not None:
        if worker.phase not in (Phase.ACTIVE, Phase.STARTING):
            return "alone"
        if table.servers:  # a worker that has trained must still run the end of its script
            is_spared = not worker.has_trained and table.can_spare(worker.name, *together)
            return "alone" if is_spared and not exits_again else "end"
        if worker.has_trained or is_ending:
            return "alone"
    is_needed = worker is None or not (table.servers or on_loss == "stop" or exits_again)
    return "all" if is_needed else "end"


def _lost_alone(table: Table, worker: Role, loss: Loss, is_ending: bool, now: Time) -> Decision:
    if worker.phase is Phase.FENCING:  # the worker is known; perhaps it has ended meanwhile
        has_ended = worker.has_ended or loss.has_ended
        return _fenced(table, replace(worker, has_ended=has_ended, kept=loss.kept), now)
    if (worker.phase, "lost") not in NEXT:
        return table, []
    if not table.servers:
        removed = [] if worker.has_finished else [Removed(worker.number, 0)]
        return table.having(worker.then("gone")), removed
    if worker.has_finished:
        return _fence_off(table, worker.then("lost"), table.server_names, stays=False)
    if is_ending:
        return table.having(replace(worker.then("gone"), deadline=None)), []
    stays = table.rules.replaces
    if stays:
        deadline = now + nanoseconds(table.rules.fence_s)
        worker = replace(worker.then("lost"), deadline=deadline, deaths=(*worker.deaths, now))
    else:
        worker = replace(worker.then("left"), deadline=None)
    worker = replace(worker, how=loss.how, has_ended=loss.has_ended, kept=loss.kept)
    # A scheduler that no longer waits for the worker lets the others pull. If a server still waited
    # for the worker, their pulls would miss an iteration. So the scheduler is told after the
    # servers.
    told = [*table.server_names, *(table.schedulers if stays else ())]
    table, orders = _fence_off(table, worker, told, stays=stays)
    return table, orders if loss.has_ended else [*orders, Kill(worker.number)]


def _all_anew(table: Table, why: str, lost: Sequence[Loss]) -> Decision:
    table = replace(table, early=table.early + 1)
    if table.early < _MOST_EARLY:
        return table, [BeginAgain(why, len(table.workers), len(table.servers), lost=lost)]
    text = (
        f"{why}: the {_MOST_EARLY}rd time before the training began; look at the output "
        "of the process, and in the log of the system for what kills it (lack of memory)"
    )
    return table, [EndRun(text, lost)]


def _all_again(table: Table, why: str, lost: Sequence[Loss], names: Collection[str]) -> Decision:
    """Return the order to begin again from the last checkpoint, or to end the run.

    names: the names of all lost processes, including workers that could be replaced alone.
    """
    rules, checkpoint, without = table.rules, table.checkpoint, list[str]()
    if rules.on_loss == "continue":
        without += [each.name for each in table.workers if each.has_left or each.name in names]
    workers = len(table.workers) - len(without)
    lost_servers = [name for name in table.server_names if name in names]
    if rules.on_server_loss == "continue":
        without += lost_servers
    servers = len(table.workers) + len(table.servers) - len(without) - workers
    if checkpoint and not rules.can_begin_again:
        said = "its workers were started elsewhere, so start them again with outpace serve"
        text = f"{why}; {said} --resume: it continues from checkpoint {checkpoint}"
        return table, [EndRun(text, lost)]
    if workers < rules.least:
        text = f"{why}; the run needs at least {plural(rules.least, 'worker')}"
        return table, [EndRun(text, lost)]
    if table.servers and not servers:
        return table, [EndRun(f"{why}; the run needs at least 1 server", lost)]
    if checkpoint == 0:
        return table, [EndRun(why + rules.no_checkpoint, lost)]
    if rules.on_server_loss == "stop":
        return table, [EndRun(why, lost)]
    losses = 1 + (table.losses if checkpoint == table.began_from else 0)
    table = replace(table, losses=losses, began_from=checkpoint, early=0)
    if losses == MOST_LOSSES:
        said = f"the {MOST_LOSSES}th loss since checkpoint {checkpoint}"
        return table, [EndRun(f"{why}: {said}; the run ends", lost)]
    orders: list[Order] = [BeginAgain(why, workers, servers, checkpoint, lost, tuple(without))]
    if table.change is not None and table.change.can_return:
        orders.append(_unchanged(table.change, why))
        table = replace(table, change=None)
    return table, orders


# -- replaced workers ------------------------------------------------------------------------


def _fence_off(table: Table, worker: Role, names: Sequence[str], *, stays: bool) -> Decision:
    """Give a worker a new generation, and let these processes accept only that generation."""
    generation = table.generation + 1
    worker = replace(worker, generation=generation, reached={})
    return _tell(replace(table, generation=generation), worker, names, stays=stays)


def _tell(table: Table, worker: Role, names: Sequence[str], *, stays: bool) -> Decision:
    """Let these accept only the worker's present generation, and wait for their confirmations."""
    told = table.having(replace(worker, unconfirmed=frozenset(names)))
    return told, [Replace(name, worker.number, worker.generation, stays) for name in names]


def _confirmed(table: Table, event: Confirmed, now: Time) -> Decision:
    server, number, generation = event.server, event.worker, event.generation
    if not 0 <= number < len(table.workers):
        raise ProtocolError(f"{server} confirms worker {number}, which does not exist")
    worker = table.workers[number]
    if generation < worker.generation:
        return table, []  # the worker has been lost again
    if generation > worker.generation or server not in worker.unconfirmed:
        raise ProtocolError(
            f"{server} confirms generation {generation} of {worker.name}, for which it was not "
            "asked"
        )
    worker = replace(
        worker,
        unconfirmed=worker.unconfirmed - {server},
        reached={**worker.reached, server: (event.watermark, event.clock)},
    )
    if worker.unconfirmed:
        return table.having(worker), []
    if worker.phase not in (Phase.LEAVING, Phase.CLOSING):
        return _fenced(table, worker, now)
    if untold := [name for name in table.schedulers if name not in worker.reached]:
        return _tell(table, worker, untold, stays=False)
    worker, lost = _count_lost(table, worker.then("told"))
    is_said = lost or not worker.has_finished
    return table.having(worker), [Removed(number, lost)] if is_said else []


def _fenced(table: Table, worker: Role, now: Time) -> Decision:
    """Start the next process of a lost worker if nothing of the lost process can arrive any more.

    This is so when the lost process has ended and every server accepts the next process only.
    """
    if worker.phase is not Phase.FENCING or worker.unconfirmed or not worker.has_ended:
        return table.having(worker), []
    highest = _highest(table, worker)
    if highest >= worker.first:  # the lost process has pushed something
        worker = replace(worker, deaths=worker.deaths[-1:])
    if why := _why_hopeless(table.rules, worker, now):
        return table.having(replace(worker, deadline=None)), [EndRun(why)]
    begins = max(max(1 + watermark, clock) for watermark, clock in worker.reached.values())
    worker = replace(
        worker.then("fenced"),
        done=1 + highest,
        first=max(begins, worker.kept),
        deadline=now + nanoseconds(table.rules.start_s),
    )
    worker, lost = _count_lost(table, worker)
    return table.having(worker), [Start(worker.number, worker.generation, worker.first, lost)]


def _highest(table: Table, worker: Role) -> int:
    """Return the last iteration of a worker that any server has."""
    return max(worker.reached[server][0] for server in table.server_names)


def _count_lost(table: Table, worker: Role) -> tuple[Role, int]:
    """Count a worker's iterations that some servers have and others lack, unless counted before."""
    reached = (worker.reached[server] for server in table.server_names)
    # A server has finished all iterations before its clock, perhaps without this worker.
    lowest = min(max(watermark, clock - 1) for watermark, clock in reached)
    # A worker that has left pushes no more gradients, whatever state its script has.
    kept = worker.kept - 1 if worker.is_starting else -1
    last = max(_highest(table, worker), kept)
    lost = max(0, last - max(lowest, worker.counted))
    return replace(worker, counted=max(worker.counted, last)), lost


def _why_hopeless(rules: Rules, worker: Role, now: Time) -> str:
    """Return why repeated losses of a worker end the run; empty: they do not."""
    deaths = worker.deaths
    since = now - deaths[0]
    if len(deaths) < DEATHS or since < nanoseconds(rules.hopeless_s):
        return ""
    return (
        f"{worker.name} was lost {len(deaths)} times in {seconds(since):.0f} s and finished no "
        f"iteration in this time; the last time it {worker.how}"
    )


def _finished(table: Table, role: Role) -> Table:
    if (role.phase, "finished") not in NEXT:
        return table
    return table.having(replace(role.then("finished"), deadline=None))


def _deadline_passed(table: Table, now: Time) -> Decision:
    """End the run if a deadline has passed."""
    for worker in table.workers:
        if worker.deadline is not None and worker.deadline <= now:
            late = EndRun(_too_late(table.rules, worker))
            return table.having(replace(worker, deadline=None)), [late]
    return table, []


def _too_late(rules: Rules, worker: Role) -> str:
    before = f"{worker.name} {worker.how}, and "
    if worker.is_starting:
        limit = f"within {rules.start_s:.0f} s"
        return f"{before}the process that takes its place was not ready {limit}"
    limit = f"within {rules.fence_s:.0f} s"
    if worker.unconfirmed:
        return f"{before}{', '.join(sorted(worker.unconfirmed))} did not confirm it {limit}"
    return f"{before}its process did not end {limit}"


# -- other numbers of processes ----------------------------------------------------------------


def in_words(workers: int, servers: int) -> str:
    """Return numbers of workers and servers as text."""
    kinds = {"worker": workers, "server": servers}
    return " and ".join(plural(number, kind) for kind, number in kinds.items() if number)


def _asked_to_scale(table: Table, event: AskedToScale) -> Decision:
    if not table.has_begun or table.change is not None:
        raise ProtocolError("the run cannot have other numbers of processes now")
    before = len(table.workers), len(table.servers)
    workers, servers = event.workers or before[0], event.servers or before[1]
    if (workers, servers) == before and not table.absent:
        return table, []
    new = [
        *map(server_name, range(before[1], servers)),
        *map(worker_name, range(before[0], workers)),
    ]
    waits_for: Literal["places", "checkpoint"] = "places" if new else "checkpoint"
    change = Change(workers, servers, before, event.asker, event.at, waits_for)
    return replace(table, change=change), [Reserve(new) if new else Save()]


def _change_that_waits_for(table: Table, what: Literal["places"]) -> Change:
    if table.change is None or table.change.waits_for != what:
        raise ProtocolError(f"the run does not wait for {what}")
    return table.change


def _too_few_places(table: Table, event: TooFewPlaces) -> Decision:
    if table.has_begun and not (table.returning and table.checkpoint):
        raise ProtocolError("the run has places for all its processes, or no checkpoint")
    before = len(table.workers), len(table.servers)
    workers, servers = event.workers or before[0], event.servers or before[1]
    orders: list[Order] = [BeginAgain(event.why, workers, servers, table.checkpoint)]
    if table.change is None or table.has_begun:
        if table.change is not None:
            orders.append(Unchanged(table.change.asker, event.why))
        change = Change(workers, servers, before, "", event.at, "training", can_return=False)
    else:
        change = replace(table.change, workers=workers, servers=servers)
    return replace(table, change=change), orders


def _is_tried(table: Table) -> bool:
    """True if the processes have begun with new numbers but do not train yet."""
    change = table.change
    return change is not None and change.waits_for == "training" and change.can_return


def _taken_back(table: Table, why: str) -> Decision:
    """Let all begin again with the old numbers, because training with new ones did not begin."""
    change = table.change
    assert change is not None
    again = _begin_again(table, *change.before)
    return replace(table, change=None), [again, _unchanged(change, why)]


def _unchanged(change: Change, why: str) -> Unchanged:
    return Unchanged(change.asker, f"the run does not change: {why}")
