"""The service times of servers: for a push, for an update, to judge a pull, to answer one.

A server does one thing at a time. So the time for a push lasts from its arrival, or from the end of
what the server did before if that is later, until the shard has handled it. It includes reading and
decoding, and no wait for other work or for the policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from outpace.cluster.calibration import Flags, Floats, Ints
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
        push_server, answer_server: The place of the server of each of them, from 0 to M - 1.
        updates: Mean of an update of each server, and its standard error, shape (M, 2); NaN where
            it is not known.
    """

    push: Floats
    update_s: float
    judge_s: float
    answer: Floats
    push_server: Ints
    answer_server: Ints
    updates: Floats

    @staticmethod
    def joined(parts: Sequence[ServiceTimes]) -> ServiceTimes:
        """Return the times of one or several runs of the same servers."""
        weights = [len(times.push) for times in parts]
        means, errors = np.stack([times.updates for times in parts]).transpose(2, 0, 1)
        error = np.sqrt((errors**2).sum(axis=0)) / len(parts)
        return ServiceTimes(
            np.concatenate([times.push for times in parts]),
            float(np.average([times.update_s for times in parts], weights=weights)),
            float(np.average([times.judge_s for times in parts], weights=weights)),
            np.concatenate([times.answer for times in parts]),
            np.concatenate([times.push_server for times in parts]),
            np.concatenate([times.answer_server for times in parts]),
            np.stack([means.mean(axis=0), error], axis=1),
        )

    @property
    def pushes(self) -> list[Floats]:
        """The times of the pushes of each server."""
        return [self.push[self.push_server == server] for server in range(len(self.updates))]

    @property
    def answers(self) -> list[Floats]:
        """The times of the answers of each server."""
        return [self.answer[self.answer_server == server] for server in range(len(self.updates))]


def service_times(requests: Requests, is_push: Flags, *, on_advance: bool) -> ServiceTimes:
    """Return the service times of the pushes and pulls of a run.

    Args:
        is_push: Mask of the pushes; the others are pulls alone.
        on_advance: True if the servers make one update of all gradients of an iteration, so that
            one push of an iteration, the last, has the time of the update.
    """
    push, judge = np.full((2, len(requests)), np.nan)
    servers, place = np.unique(requests.server, return_inverse=True)
    place = place.ravel()
    for server in range(len(servers)):
        mine = place == server
        push[mine], judge[mine] = _one_after_another(requests.where(mine))
    known = ~np.isnan(push) & is_push
    last = known & _last_of_iteration(requests, is_push)
    answered = requests.answered_end - requests.answer_begun
    # The pull behind the last push of an iteration is the one that is not held.
    judged = _positive(judge[last])
    judge_s = float(np.median(judged)) if len(judged) else _SHORTEST
    workers = len(np.unique(requests.worker))
    pushes, update_s = known, 0.0
    updates = np.full((len(servers), 2), np.nan)
    if on_advance and workers > 1 and last.any() and (known & ~last).any():
        more, error = _longer(push, known, last)
        if more > max(_ERRORS * error, _WORTH * _positive(push[known & ~last]).mean()):
            pushes, update_s = known & ~last, more
            updates[:] = [
                _longer(push, known & (place == server), last) for server in range(len(servers))
            ]
    return ServiceTimes(
        _positive(push[pushes]),
        update_s,
        judge_s,
        _positive(answered),
        place[pushes],
        place[~np.isnan(answered)],
        updates,
    )


def _longer(push: Floats, known: Flags, last: Flags) -> tuple[float, float]:
    """Return how much longer the last pushes of iterations take, and its standard error.

    NaN if there are no others to compare them with.
    """
    others, ones = _positive(push[known & ~last]), _positive(push[known & last])
    if not (len(others) and len(ones)):
        return math.nan, math.nan
    error = math.hypot(*(part.std() / math.sqrt(len(part)) for part in (others, ones)))
    return float(ones.mean() - others.mean()), error


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


def _last_of_iteration(requests: Requests, is_push: Flags) -> Flags:
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
