"""Run times from the traces of training jobs that ByteDance released.

They belong to "Understanding Stragglers in Large Model Training Using What-if Analysis" (Lin et
al. 2025) and have one row per operation of a worker, as Parquet or the same columns as .npz.
A step of such a job consists of micro-batches, and each of them is an iteration here: the time
that a rank of data parallelism, with all of its pipeline stages, computed for it, forward and
backward. Transfers and collectives are left out, since they last until the slowest rank comes.
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from outpace.errors import ConfigError
from outpace.predict.recorded.rows import read_columns
from outpace.predict.recorded.table import RunTimes, consecutive_nodes, require_valid
from outpace.support.regular_files import named

COLUMNS: Final = ("dp_rank", "step", "mb_id", "optype", "duration")
_COMPUTED: Final = ("forward-compute", "backward-compute")


def is_bytedance(path: Path) -> bool:
    """True if it is a Parquet file with these columns. Raises ConfigError if it is unreadable."""
    if path.suffix != ".parquet":
        return False
    try:
        return set(COLUMNS) <= set(pq.read_schema(path).names)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise ConfigError(f"cannot read the run times in {path}: {error}") from error


def read_bytedance(path: Path, workers_per_node: int | None = None) -> RunTimes:
    """Read a table whose workers are ranks and whose iterations are the micro-batches of all steps.

    workers_per_node: ranks that share a node, which the traces do not say; None: all. Raises
    ConfigError if the file cannot be read or is not complete.
    """
    rank, step, batch, kind, duration = _columns(path)
    computed = np.isin(kind, _COMPUTED)
    if not computed.any():
        raise ConfigError(f"{path}: has no operation {' or '.join(_COMPUTED)}")
    ranks, worker = np.unique(rank[computed], return_inverse=True)
    rounds = np.stack([step[computed], batch[computed]])
    _, iteration = np.unique(rounds, axis=1, return_inverse=True)
    at = iteration.ravel(), worker.ravel()
    shape = int(at[0].max()) + 1, len(ranks)
    seconds, operations = np.zeros(shape), np.zeros(shape, np.int64)
    np.add.at(seconds, at, duration[computed].astype(np.float64))
    np.add.at(operations, at, 1)
    # A rank with fewer operations than others was not faster: its trace is incomplete.
    partial = (operations > 0) & (operations < operations.max())
    if partial.any():
        place, number = (int(index) for index in np.argwhere(partial)[0])
        raise ConfigError(
            f"{path}: rank {ranks[number]} has {operations[place, number]} operations of round "
            f"{place}, others {operations.max()}: the trace is incomplete"
        )
    seconds[operations == 0] = np.nan
    censored = np.zeros(shape, np.bool_)
    node = consecutive_nodes(len(ranks), workers_per_node)
    return require_valid(RunTimes(seconds, censored, node), path)


def _columns(path: Path) -> list[NDArray[np.generic]]:
    if path.suffix == ".parquet":
        table = read_columns(path)
        return [table[name].to_numpy() for name in COLUMNS]
    try:
        with open(path, "rb", opener=named) as file, np.load(file, allow_pickle=False) as arrays:
            missing = sorted(set(COLUMNS) - set(arrays.files))
            if missing:
                raise ConfigError(
                    f"{path}: needs the arrays {', '.join(COLUMNS)}, and lacks {missing[0]}"
                )
            found = [np.asarray(arrays[name]) for name in COLUMNS]
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ConfigError(f"cannot read the run times in {path}: {error}") from error
    if len({len(column) for column in found}) > 1:
        raise ConfigError(f"{path}: its arrays differ in length")
    return found
