"""Runs whose processes shared memory, so that some of their blocks did not travel."""

from __future__ import annotations

import numpy as np

from outpace.experiment.calibrating.runs import RunData
from outpace.real.net.memory.slots import LEAST_BYTES
from outpace.sync.messages import server_name, worker_name


def is_in_memory(run: RunData) -> bool:
    """True if large blocks of requests or answers lay in memory that both processes shared.

    Which of them did is not recorded: those for which there was no memory or no slot did not.
    """
    requests = None if run.measured is None else run.measured.requests
    if requests is None or not run.config.get("shared_memory"):
        return False
    is_large = np.maximum(requests.sent_bytes, requests.answer_bytes) >= LEAST_BYTES
    pairs = np.stack([requests.worker, requests.server], axis=1)[is_large]
    return any(
        run.nodes.get(worker_name(worker)) == run.nodes.get(server_name(server))
        for worker, server in np.unique(pairs, axis=0).tolist()
    )


def memory_words(run: RunData) -> str:
    """Return what must be known of a calibration on a run with blocks in shared memory."""
    return (
        f"the run has shared_memory: true, so blocks of {LEAST_BYTES >> 10} KiB and more did not "
        "travel between processes of one machine: latency and bandwidth there are those of a block "
        f"of {run.push_bytes / 1e6:.3g} MB in memory, too fast for smaller blocks and for runs "
        "without shared_memory; for these calibrate on a run without it"
    )
