"""Files of run times: read back as written, or refused with the place of the error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.support.tables import assert_same, table

from outpace.errors import ConfigError
from outpace.predict.recorded import read, read_run_times, write

HEAD = "worker,iteration,seconds\n"
NAN = float("nan")


def csv(folder: Path, text: str) -> Path:
    path = folder / "times.csv"
    path.write_text(text)
    return path


@st.composite
def tables(draw):
    """Tables with a worker in every iteration, and all workers in one."""
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 5)))
    seconds = draw(arrays.arrays(np.float64, shape, elements=st.floats(1e-9, 1e9)))
    absent = draw(arrays.arrays(np.bool_, shape))
    absent[0] = False
    absent[:, 0] = False
    seconds[absent] = np.nan
    censored = draw(arrays.arrays(np.bool_, shape)) & ~absent
    node = draw(arrays.arrays(np.int64, shape[1], elements=st.integers(0, 3)))
    return table(seconds, censored=censored, node=node)


@given(tables())
def test_what_is_written_is_read_again_bit_for_bit(tmp_path_factory, times):
    folder = tmp_path_factory.mktemp("files")
    write(times, folder / "times.parquet")
    assert_same(read(folder / "times.parquet"), times)
    write(read(folder / "times.parquet"), folder / "again.parquet")
    assert (folder / "again.parquet").read_bytes() == (folder / "times.parquet").read_bytes()


def test_the_columns_are_those_of_the_contract_and_absent_workers_have_no_row(tmp_path):
    path = tmp_path / "times.parquet"
    write(table([[1.0, 2.0], [3.0, NAN]], censored=[[0, 1], [0, 0]], node=[0, 4]), path)
    assert pq.read_table(path).to_pylist() == [
        {"worker": 0, "node": 0, "iteration": 0, "seconds": 1.0, "censored": False},
        {"worker": 1, "node": 4, "iteration": 0, "seconds": 2.0, "censored": True},
        {"worker": 0, "node": 0, "iteration": 1, "seconds": 3.0, "censored": False},
    ]


def test_csv_needs_no_more_than_worker_iteration_and_seconds(tmp_path):
    path = csv(tmp_path, HEAD + "1,0,2\n0,1,3\n0,0,1\n")
    assert_same(read(path), table([[1.0, 2.0], [3.0, NAN]]))


@pytest.mark.parametrize("yes", ["true", "1"])
def test_csv_may_say_node_and_censored(tmp_path, yes):
    no = {"true": "false", "1": "0"}[yes]
    text = f"censored,node,worker,iteration,seconds\n{yes},7,0,0,1.5\n{no},8,1,0,2.5\n"
    expected = table([[1.5, 2.5]], censored=[[1, 0]], node=[7, 8])
    assert_same(read(csv(tmp_path, text)), expected)


def test_workers_per_node_overrules_the_file(tmp_path):
    path = tmp_path / "times.parquet"
    write(table([[1.0, 2.0, 3.0]], node=[5, 5, 5]), path)
    assert read(path).node.tolist() == [5, 5, 5]
    assert read(path, 2).node.tolist() == [0, 0, 1]
    with pytest.raises(ConfigError, match="workers per node must be at least 1, not 0"):
        read(path, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot read the run times"),
        ("a,b\n1,2\n", "needs the columns worker, iteration, seconds, and has .*a.*b"),
        (HEAD, "has no rows"),
        (HEAD + "0,0,1\n1,0,nan\n", "worker 1, iteration 0 has no time.*leave out such rows"),
        (HEAD + "0,0,1\n1,0,\n", "worker 1, iteration 0 has no time"),
        (HEAD + "0,0,1\n0,1,inf\n", "worker 0, iteration 1 has no time"),
        (
            HEAD + "0,0,1\n0,1,0\n",
            "worker 0, iteration 1: 0 is not a run time",
        ),
        (HEAD + "0,0,1\n1,0,-2\n", "worker 1, iteration 0: -2 is not a run time"),
        (HEAD + "0,0,1\n0,0,2\n", "worker 0, iteration 0 is there twice"),
        (HEAD + "0,0,1\n2,0,2\n", "has no rows of worker 1:"),
        (HEAD + "0,0,1\n0,2,2\n", "has no rows of iteration 1:"),
        (HEAD + "0,1,1\n", "has no rows of iteration 0:"),
        (HEAD + "0,0,1\n0.5,0,2\n", "row 2: worker must be a whole number from 0 on, not 0.5"),
        (HEAD + "0,0,1\n0,-1,2\n", "row 2: iteration must be a whole number from 0 on, not -1"),
        (HEAD + "0,0,soon\n", "column seconds must hold numbers"),
        ("worker,iteration,seconds,node\n0,0,1,0\n0,1,1,3\n", "worker 0 is on two nodes"),
        ("worker,iteration,seconds,node\n0,0,1,x\n", "column node must hold numbers"),
        ("worker,iteration,seconds,censored\n0,0,1,2\n", "row 1: censored must be true or false"),
    ],
)
def test_what_is_no_table_of_times_is_refused_with_the_place(tmp_path, text, words):
    with pytest.raises(ConfigError, match=words):
        read(csv(tmp_path, text))


def test_a_time_that_was_cut_off_is_not_replayed_as_if_it_were_whole(tmp_path):
    path = tmp_path / "times.parquet"
    write(table([[1.0, 2.0], [1.0, 3.0]], censored=[[0, 0], [0, 1]]), path)
    with pytest.raises(ConfigError, match="worker 1, iteration 1 was cut off"):
        read_run_times(path)
    write(table([[1.0, 2.0], [1.0, 3.0]]), path)
    assert {w: t.tolist() for w, t in read_run_times(path).items()} == {0: [1, 1], 1: [2, 3]}
