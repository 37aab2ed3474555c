"""Latencies from a file of round-trip times, and the refusal of wrong files."""

import numpy as np
import pytest
from tests.support.wire import Wire

from outpace.cluster.machines import Machines
from outpace.cluster.matrix import Matrix
from outpace.cluster.network import LinkLaw, NetworkLaw, PairLaw
from outpace.errors import ConfigError
from outpace.support.units import SECOND

MS = SECOND // 1000
HALVED = {("worker-0", "worker-1"): 1, ("worker-0", "server-0"): 2, ("server-0", "worker-1"): 3}
TIMES = np.array([[0.0, 2.0, 4.0], [2.0, 0.0, 6.0], [4.0, 6.0, 0.0]])  # ms, there and back


def latencies(law, machines, pairs):
    """Return the times of messages without bytes, in ns."""
    found = {}
    for sender, receiver in pairs:
        wire = Wire(law, list(machines.of_nodes()), machines=machines)
        wire.send_at(0, sender, receiver, 0)
        found[sender, receiver] = wire.run().delivered[0]
    return found


def saved(path, array):
    """Save the array in the format of the name."""
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".npz":
        np.savez(path, times=array)
    else:
        np.savetxt(path, array, delimiter="," if path.suffix == ".csv" else " ")
    return path


@pytest.mark.parametrize("name", ["m.npz", "m.npy", "m.csv", "m.txt"])
@pytest.mark.parametrize("contention", ["serialised", "fair"])
def test_a_message_takes_half_of_the_round_trip_in_every_format(tmp_path, name, contention):
    law = NetworkLaw(matrix=Matrix(str(saved(tmp_path / name, TIMES)), "ms"), contention=contention)
    expected = {ends: time * MS for ends, time in HALVED.items()}
    assert latencies(law, Machines(2, 1), HALVED) == expected


def test_pairs_win_over_nodes_and_nodes_over_the_matrix(tmp_path):
    law = NetworkLaw(
        matrix=Matrix(str(saved(tmp_path / "m.npy", TIMES)), "ms"),
        nodes={"worker-1": LinkLaw(latency_s=0.002)},
        pairs=(PairLaw(("server-0", "worker-0"), latency_s=0.0005),),
    )
    # worker-1 says 2 ms, the other end has the matrix's 1 and 3: the slower counts.
    assert latencies(law, Machines(2, 1), HALVED) == {
        ("worker-0", "worker-1"): 2 * MS,
        ("worker-0", "server-0"): MS // 2,
        ("server-0", "worker-1"): 3 * MS,
    }


def changed(row, column, value):
    times = TIMES.copy()
    times[row, column] = value
    return times


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (TIMES[:2], "must be a square matrix, not 2 x 3"),
        (changed(0, 2, np.nan), "row 0, column 2 (from 0): nan is not a round-trip time in ms"),
        (changed(1, 2, 6.1), "must be symmetric, but row 1, column 2 (from 0) is 6.1 and row 2, "),
        (TIMES[:2, :2], "3 machines need as many rows, and there are 2"),
        (TIMES * 1j, "must hold numbers, not complex128"),
        (np.array([[None]]), "cannot read the matrix in"),  # a pickle
    ],
)
def test_what_is_no_matrix_of_times_is_refused_with_file_and_place(tmp_path, array, words):
    path = saved(tmp_path / "rtt.npz", array)
    with pytest.raises(ConfigError) as error:
        Matrix(str(path), "ms").latencies(3)
    assert words in str(error.value)
    assert str(path) in str(error.value)
