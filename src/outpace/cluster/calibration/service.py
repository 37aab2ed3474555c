"""Estimates the times that servers need for a push, an update, judging a pull and answering it.

A server does one thing at a time. So the time for a push lasts from its arrival, or from the end of
the server's previous work if that is later, until the shard has handled the push. It includes
reading and decoding, but no wait for other work or for the policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from outpace.cluster.calibration import Flags, Floats
from outpace.cluster.calibration.factors import server_factors
from outpace.cluster.calibration.independent import service_law
from outpace.cluster.calibration.requests import Requests
from outpace.cluster.laws import Constant, ServiceLaw

_SHORTEST: Final = 1e-7  # s; a service time of 0 has no likelihood
_ERRORS: Final = 4  # standard errors by which pushes with an update must take longer
_WORTH: Final = 0.05  # share of a push's time; a smaller update time is not given separately


@dataclass(frozen=True, slots=True, eq=False)
class ServiceTimes:
    """Service times in s, with an array for each server.

    Args:
        push: Times of pushes.
        last: Times of the pushes that completed an iteration, if these made the update of all
            gradients.
        judge: Times to judge the pull behind a push, if the policy did not hold the pull.
        answer: Times to read the parameters and give the answer to the socket.
    """

    push: Sequence[Floats]
    last: Sequence[Floats]
    judge: Sequence[Floats]
    answer: Sequence[Floats]

    @staticmethod
    def joined(parts: Sequence[ServiceTimes]) -> ServiceTimes:
        """Return the times of one or several runs of the same servers."""
        columns = [[getattr(part, entry.name) for part in parts] for entry in fields(ServiceTimes)]
        return ServiceTimes(
            *(list(map(np.concatenate, zip(*column, strict=True))) for column in columns)
        )


def service_times(requests: Requests, is_push: Flags, *, on_advance: bool) -> ServiceTimes:
    """Return the service times of the pushes and pulls of a run.

    Args:
        is_push: Mask of the pushes; the other requests are pulls without a push.
        on_advance: True if the servers make one update of all gradients of an iteration, so that
            the last push of an iteration includes the time of the update.
    """
    last = _last_of_iteration(requests, is_push)
    answered = requests.answered_end - requests.answer_begun
    has_update = last if on_advance and len(np.unique(requests.worker)) > 1 else np.zeros_like(last)
    found: list[list[Floats]] = [[], [], [], []]
    for server in np.unique(requests.server):
        mine = requests.server == server
        push, judge = np.full((2, len(requests)), np.nan)
        push[mine], judge[mine] = _one_after_another(requests.where(mine))
        # Only the pull behind the last push of an iteration is not held.
        chosen = (
            push[is_push & ~has_update],
            push[is_push & has_update],
            judge[last & ~np.isnan(push)],
            answered[mine],
        )
        for column, times in zip(found, chosen, strict=True):
            column.append(np.maximum(times[~np.isnan(times)], _SHORTEST))
    return ServiceTimes(*found)


def service_laws(times: ServiceTimes, *, with_factors: bool) -> dict[str, ServiceLaw]:
    """Return the laws of the service times by their keys.

    `update_time` is the additional time of the pushes that completed an iteration. It is absent if
    these cannot be told from other pushes.

    Args:
        with_factors: Give each server a factor if servers clearly differ.
    """
    updates = np.array(list(map(_longer, times.push, times.last)))
    update_s, error = _longer(np.concatenate(times.push), np.concatenate(times.last))
    push = list(map(np.concatenate, zip(times.push, times.last, strict=True)))
    update = None
    if update_s > _ERRORS * error and update_s > _WORTH * np.concatenate(times.push).mean():
        push, factors = list(times.push), server_factors(*updates.T) if with_factors else ()
        update = Constant(mean_s=update_s, factors=factors)
    laws: dict[str, ServiceLaw] = {}
    if any(map(len, push)):
        laws["push_time"] = _law(push, with_factors=with_factors)
    if any(map(len, times.answer)):
        laws["pull_time"] = _law(times.answer, with_factors=with_factors)
        judged = np.concatenate(times.judge)
        judge_s = float(np.median(judged)) if len(judged) else _SHORTEST
        laws["judge_time"] = Constant(mean_s=judge_s)
    return laws | ({} if update is None else {"update_time": update})


def _law(times: Sequence[Floats], *, with_factors: bool) -> ServiceLaw:
    """Return one law for the times of all servers."""
    levels = np.array([_mean_and_error(each) for each in times])
    factors = server_factors(*levels.T) if with_factors else ()
    if not factors:
        return service_law(np.concatenate(times))
    scaled = [each / factor for each, factor in zip(times, factors, strict=True)]
    return replace(service_law(np.concatenate(scaled)), factors=factors)


def _mean_and_error(times: Floats) -> tuple[float, float]:
    """Return the mean and its standard error; NaN for fewer than two times."""
    if len(times) < 2:
        return math.nan, math.nan
    return float(times.mean()), float(times.std(ddof=1)) / math.sqrt(len(times))


def _longer(others: Floats, ones: Floats) -> tuple[float, float]:
    """Return how much longer `ones` take than `others`, with its standard error; or NaN."""
    mean, error = _mean_and_error(others)
    mean_of_ones, error_of_ones = _mean_and_error(ones)
    return mean_of_ones - mean, math.hypot(error, error_of_ones)


def _one_after_another(requests: Requests) -> tuple[Floats, Floats]:
    """Return the server's times for each push, and for judging each pull, without other work."""
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
