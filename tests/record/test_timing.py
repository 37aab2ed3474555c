"""timing.parquet: the two halves of requests, from two processes, become rows in bounded memory."""

import numpy as np
import pytest

from outpace.errors import ConfigError
from outpace.record.tables import NONE
from outpace.record.timing import (
    COMPUTE,
    PUSH,
    SCHEMA,
    WIDTH,
    Sampling,
    Timing,
    read_timing,
    require_own,
    timing_table,
)


def row(what, worker, server, iteration, **known):
    columns = {"what": what, "worker": worker, "server": server, "iteration": iteration, **known}
    return [columns.get(name, NONE) for name in SCHEMA.names]


def table_of(parts):
    table = timing_table()
    for part in parts:
        table.add(part)
    return table.table()


def test_the_halves_of_a_request_become_one_row_and_a_half_alone_stays():
    batches = []
    timing = Timing(batches.append)
    timing.add(
        np.array(
            [
                row(PUSH, 1, 0, 7, sent_bytes=40, sent_ns=100, arrived_ns=900),
                row(PUSH, 1, 0, 8, sent_bytes=40, sent_ns=1000),
                row(COMPUTE, 1, -1, 7, sent_ns=10, arrived_ns=99),
            ]
        )
    )
    timing.add(np.array([row(PUSH, 1, 0, 7, received_ns=5, answered_ns=6)]))
    timing.flush()
    rows = {(each["what"], each["iteration"]): each for each in table_of(batches).to_pylist()}
    assert len(rows) == 3
    whole = rows["push", 7]
    names = ("sent_bytes", "sent_ns", "received_ns", "answered_ns", "arrived_ns", "begun_ns")
    assert [whole[name] for name in names] == [40, 100, 5, 6, 900, None]
    assert rows["push", 8]["received_ns"] is None
    assert rows["compute", 7]["arrived_ns"] == 99


def test_memory_is_bounded_when_halves_stay_alone():
    batches = []
    timing = Timing(batches.append)
    count = 100_000
    rows = np.full((count, WIDTH), NONE)
    rows[:, :3], rows[:, 4] = [PUSH, 0, 0], np.arange(count)
    rows[:, SCHEMA.names.index("sent_ns")] = 1
    timing.add(rows)
    handed_on = sum(map(len, batches))
    assert handed_on == count - 65_536  # the documented most, and the oldest go first
    assert batches[0][0, 4] == 0
    timing.flush()
    assert table_of(batches).num_rows == count


@pytest.mark.parametrize(
    ("place", "number"), [("what", 8), ("what", NONE), ("worker", 2**31), ("server", -(2**40))]
)
def test_numbers_that_cannot_be_rows_are_refused(place, number):
    batches = []
    timing = Timing(batches.append)
    bad = row(PUSH, 0, 0, 0)
    bad[SCHEMA.names.index(place)] = number
    with pytest.raises(ValueError, match="out of range"):
        timing.add(np.array([bad]))
    timing.flush()
    assert not batches


def test_a_process_gives_only_what_it_knows():
    require_own(np.array([row(PUSH, 1, 0, 7, sent_ns=3), row(COMPUTE, 1, -1, 7)]), "worker-1")
    require_own(np.array([row(PUSH, 1, 0, 7, received_ns=3)]), "server-0")
    for bad, name in [
        (row(PUSH, 2, 0, 7, sent_ns=3), "worker-1"),
        (row(PUSH, 1, 0, 7, received_ns=3), "worker-1"),
        (row(PUSH, 1, 1, 7, received_ns=3), "server-0"),
        (row(PUSH, 1, 0, 7, arrived_ns=3), "server-0"),
        (row(COMPUTE, 1, 0, 7), "server-0"),
    ]:
        with pytest.raises(ValueError, match=r"the rows|a server"):
            require_own(np.array([bad]), name)


def test_sampling_halves_the_share_each_time_that_the_run_is_twice_as_long():
    sampling = Sampling.of_run(workers=8, servers=2)
    assert sampling.all_until == 2048  # 32,768 rows of 16 pairs
    low = sampling.all_until
    recorded = [sum(map(sampling.recorded, range(n * low, 2 * n * low))) for n in (1, 2, 4)]
    assert recorded == [low // 2] * 3
    assert all(map(sampling.recorded, range(low)))


def test_a_folder_without_times_is_one_clear_error(tmp_path):
    with pytest.raises(ConfigError, match=r"timing\.parquet: there is no such file: only real"):
        read_timing(tmp_path)
