"""The service times of servers: for a push, for an update, to judge a pull, to answer one.

A server does one thing at a time. So the time for a push lasts from its arrival, or from the end of
what the server did before if that is later, until the shard has handled it. It includes reading and
decoding, and no wait for other work or for the policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from outpace.cluster.calibration.independent import Floats
from outpace.cluster.calibration.requests import Requests

_SHORTEST: Final = 1e-7  # s; a service time of 0 has no likelihood
_ERRORS: Final = 4  # standard errors by which pushes with an update must take longer
_WORTH: Final = 0.05  # of a push; less is not worth a time of its own


@dataclass(frozen=True, slots=True, eq=False)
class ServiceTimes:
    """Service times of all servers of a run together, in s.

    Args:
        push: Of pushes; without the update where `update` has it.
        update_s: Mean of an update by the push that completes an iteration, beyond the time of
            other pushes; 0 if the two cannot be told apart.
        judge_s: To judge a pull.
        answer: To read the parameters and give the answer to the socket.
    """

    push: Floats
    update_s: float
    judge_s: float
    answer: Floats


def service_times(
    requests: Requests, is_push: NDArray[np.bool_], *, on_advance: bool
) -> ServiceTimes:
    """Return the service times of the pushes and pulls of a run.

    Args:
        is_push: Mask of the pushes; the others are pulls alone.
        on_advance: True if the servers make one update of all gradients of an iteration, so that
            one push of an iteration, the last, has the time of the update.
    """
    push, judge = np.full((2, len(requests)), np.nan)
    for server in np.unique(requests.server):
        mine = requests.server == server
        push[mine], judge[mine] = _one_after_another(requests.where(mine))
    known = ~np.isnan(push) & is_push
    last = known & _last_of_iteration(requests, is_push)
    answered = _positive(requests.answered_end - requests.answer_begun)
    # The pull behind the last push of an iteration is the one that is not held.
    judged = _positive(judge[last])
    judge_s = float(np.median(judged)) if len(judged) else _SHORTEST
    workers = len(np.unique(requests.worker))
    pushes, update_s = _positive(push[known]), 0.0
    if on_advance and workers > 1 and last.any() and (known & ~last).any():
        others, ones = _positive(push[known & ~last]), _positive(push[last])
        more = float(ones.mean() - others.mean())
        error = math.hypot(*(part.std() / math.sqrt(len(part)) for part in (others, ones)))
        if more > max(_ERRORS * error, _WORTH * others.mean()):
            pushes, update_s = others, more
    return ServiceTimes(pushes, update_s, judge_s, answered)


def _one_after_another(requests: Requests) -> tuple[Floats, Floats]:
    """Return how long a server took for each push, and to judge its pull, without other work."""
    ends = np.concatenate([requests.done, requests.answered_end])
    ends = np.sort(ends[~np.isnan(ends)])
    arrived = np.where(
        np.isnan(requests.received_after), requests.received, requests.received_after
    )
    start = np.minimum(np.maximum(arrived, _before(ends, requests.begun)), requests.begun)
    return requests.done - start, requests.released - _before(ends, requests.released)


def _before(ends: Floats, times: Floats) -> Floats:
    """Return the last end until each time; -infinity if there is none."""
    with_none = np.concatenate([[-np.inf], ends])
    return np.asarray(with_none[np.searchsorted(ends, times, side="right")])


def _last_of_iteration(requests: Requests, is_push: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the mask of the pushes that were the last of their iteration at their server."""
    workers = len(np.unique(requests.worker))
    last, pushes = np.zeros(len(requests), np.bool_), np.flatnonzero(is_push)
    keys = np.stack([requests.server, requests.iteration], axis=1)[pushes]
    _, which, sizes = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    order = np.lexsort((requests.done[pushes], which.ravel()))
    ends = np.cumsum(sizes) - 1
    last[pushes[order[ends[sizes == workers]]]] = True
    return last


def _positive(times: Floats) -> Floats:
    known = times[~np.isnan(times)]
    return np.maximum(known, _SHORTEST)
