"""Run times of training jobs that were released: ByteDance's straggler traces, Alibaba's jobs.

ByteDance's belong to "Understanding Stragglers in Large Model Training Using What-if Analysis" (Lin
et al. 2025) and have one row per operation of a worker, here as .npz. A step of such a job consists
of micro-batches, and each of them is an iteration here: the time that a rank of data parallelism,
with all of its pipeline stages, computed for it, forward and backward. Transfers and collectives
are left out, since they last until the slowest rank comes.

Alibaba's (cluster-trace-gpu-v2020, mini-batch-time) have the columns worker, time and
batch_time_norm. The rows of a worker in the order of time are its iterations, and its run times are
normalised: not in seconds, but comparable with each other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pyarrow.csv

from outpace.errors import ConfigError
from outpace.predict.recorded import RunTimes, consecutive_nodes, require_valid

COLUMNS: Final = ("dp_rank", "step", "mb_id", "optype", "duration")
_COMPUTED: Final = ("forward-compute", "backward-compute")


def read_bytedance(path: Path, workers_per_node: int | None = None) -> RunTimes:
    """Read a table whose workers are ranks and whose iterations are the micro-batches of all steps.

    workers_per_node: number of ranks that share a node, which is not in the traces; None: all.
    Raises ConfigError if the trace is not complete.
    """
    with np.load(path) as arrays:
        rank, step, batch, kind, duration = (arrays[name] for name in COLUMNS)
    computed = np.isin(kind, _COMPUTED)
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


def read_alibaba(path: Path) -> RunTimes:
    """Read a job whose workers are numbered from 0; NaN after the end of a worker's rows."""
    table = pyarrow.csv.read_csv(path)
    columns = (table[name].to_numpy() for name in ("worker", "time", "batch_time_norm"))
    worker, time, seconds = columns
    order = np.lexsort((time, worker))
    worker, seconds = worker[order], seconds[order]
    _, starts, counts = np.unique(worker, return_index=True, return_counts=True)
    found = np.full((int(counts.max()), len(counts)), np.nan)
    found[np.arange(len(worker)) - np.repeat(starts, counts), worker] = seconds
    node = consecutive_nodes(len(counts), None)
    return require_valid(RunTimes(found, np.zeros(found.shape, np.bool_), node), path)
