"""Whatever happens, in any order: what the membership decides keeps its promises."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sync.membership.test_decide import KILLED, SERVERS, Run

from outpace.errors import ProtocolError
from outpace.sync.membership.decide import decide
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
    Loss,
    NoPlaces,
    PlacesFound,
    ProcessEnded,
    ProcessesLost,
    Start,
    TooFewPlaces,
    TrainingBegan,
    WorkerBegan,
    WorkerTrained,
)
from outpace.sync.membership.table import NEXT, Table
from outpace.sync.messages import worker_name

numbers = st.integers(0, 2)
losses = st.builds(
    Loss,
    st.sampled_from([*SERVERS, *map(worker_name, range(2))]),
    st.just(KILLED),
    st.booleans(),
    st.booleans(),
)
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(AllBegin, st.just(2), st.just(2), checkpoint=numbers),
    st.builds(TrainingBegan),
    st.builds(CheckpointComplete, numbers),
    st.builds(AttemptFailed, st.just("it fails")),
    st.builds(ProcessesLost, st.lists(losses, min_size=1, max_size=2), st.booleans()),
    st.builds(ProcessEnded, st.integers(0, 1)),
    st.builds(Confirmed, st.sampled_from(SERVERS), numbers, numbers, numbers, numbers),
    st.builds(WorkerBegan, st.integers(0, 1)),
    st.builds(WorkerTrained, st.integers(0, 1)),
    st.builds(Finished, st.sampled_from(["worker-0", "worker-1", "server-0"])),
    st.builds(DeadlinePassed),
    st.builds(AskedToScale, st.none() | st.integers(1, 3), st.none() | st.integers(1, 3)),
    st.builds(PlacesFound),
    st.builds(NoPlaces, st.just("no room")),
    st.builds(TooFewPlaces, st.just("no room"), st.integers(1, 2)),
)


@given(st.lists(events, max_size=30), st.sampled_from(["restart", "continue", "stop"]))
@settings(max_examples=300, deadline=None)
def test_any_events_whatever_they_are_leave_a_table_that_is_whole(happened, on_loss):
    table = Run(on_loss=on_loss).table
    for now, event in enumerate(happened):
        try:
            after, orders = decide(table, event, now)
        except ProtocolError:
            continue
        assert decide(table, event, now) == (after, orders)  # a function of its arguments
        if not isinstance(event, AllBegin):
            require_whole(table, after)
        for order in orders:
            if isinstance(order, Start):
                started = after.workers[order.worker]
                assert started.is_starting
                assert (started.generation, started.first) == (order.generation, order.first)
        ends = [order for order in orders if isinstance(order, BeginAgain | EndRun)]
        assert ends == list(orders[: len(ends)])  # nothing is to be done before
        table = after


def require_whole(before: Table, after: Table) -> None:
    """Require that generations only grow, and that phases follow the table of states."""
    assert after.generation >= before.generation
    assert after.attempt == before.attempt
    steps = {(phase, then) for (phase, _), then in NEXT.items()}
    # A process whose servers have confirmed starts at once.
    steps |= {(first, last) for first, mid in steps for then, last in steps if mid is then}
    rows = zip(before.servers + before.workers, after.servers + after.workers, strict=True)
    for old, new in rows:
        assert new.generation >= old.generation
        assert old.phase is new.phase or (old.phase, new.phase) in steps
        assert new.generation <= after.generation
    generations = [each.generation for each in after.workers if each.generation]
    assert len(set(generations)) == len(generations)
