"""Finds messages that a shard refuses because no correct worker sends them."""

from __future__ import annotations

from typing import Final

from outpace.errors import ProtocolError
from outpace.sync.bookkeeping.view import View
from outpace.sync.checkpoint.state import ShardState
from outpace.sync.messages import Pull, Push, Rejoin
from outpace.sync.parameter_block import ParameterBlock

_LARGEST_SKIP: Final = 100_000  # number of iterations by which a push may be ahead of all others


def is_repeated(push: Push, view: View, block: ParameterBlock, version: int) -> bool:
    """True if the push repeats the worker's last push. Raises ProtocolError if it is illegal.

    version: version of the parameters.
    """
    worker, iteration, furthest = push.worker, push.iteration, view.fastest
    if worker in view.gone or not 0 <= worker < view.workers:
        require_member(view, worker, "pushed")
    seen = view.watermarks[worker]
    if iteration < 0 or iteration < seen:
        raise ProtocolError(
            f"worker {worker} pushed iteration {iteration} after {seen}: "
            "a worker's iterations must increase"
        )
    if iteration > seen and worker in view.absent:
        require_not_paused(view, worker, "pushed")
    if iteration > furthest + _LARGEST_SKIP:
        raise ProtocolError(
            f"worker {worker} pushed iteration {iteration}, and no worker has pushed "
            f"any after {furthest}"
        )
    if not 0 <= push.version <= version:
        raise ProtocolError(
            f"worker {worker} says that it read version {push.version} of shard "
            f"{view.shard}, which is at {version}"
        )
    if push.gradient is not None and (refusal := block.refusal(push.gradient, push.settings)):
        raise ProtocolError(
            f"worker {worker}, iteration {iteration}, shard {view.shard}: {refusal}"
        )
    return iteration == seen


def require_member(view: View, worker: int, did: str) -> None:
    """Raise ProtocolError unless the worker exists and has not left. did: its action as text."""
    if view.is_member(worker):
        return
    if 0 <= worker < view.workers:
        raise ProtocolError(f"worker {worker} {did} after it had left")
    raise ProtocolError(
        f"worker {worker} {did}, but there are only workers 0 to {view.workers - 1}"
    )


def require_not_paused(view: View, worker: int, did: str) -> None:
    """Raise ProtocolError if the worker has paused. did: its action as text."""
    if view.is_paused(worker):
        raise ProtocolError(f"worker {worker} {did} after it had paused")


def require_may_pull(pull: Pull, view: View, *, is_held: bool) -> None:
    """Raise ProtocolError if the pull is illegal. is_held: True if it repeats a held pull."""
    require_member(view, pull.worker, "pulled")
    if pull.iteration < 0:
        raise ProtocolError(f"worker {pull.worker} pulled iteration {pull.iteration}")
    if not is_held:
        require_not_paused(view, pull.worker, "pulled")


def require_may_rejoin(rejoin: Rejoin, view: View) -> None:
    """Raise ProtocolError if the worker does not exist, or if its first iteration is absurd."""
    if not 0 <= rejoin.worker < view.workers:
        require_member(view, rejoin.worker, "rejoined")
    if rejoin.first - 1 > view.fastest + _LARGEST_SKIP:
        raise ProtocolError(
            f"worker {rejoin.worker} rejoined with iteration {rejoin.first}, and no worker has "
            f"pushed any after {view.fastest}"
        )


def require_fits(state: ShardState, view: View, block: ParameterBlock, version: int) -> None:
    """Raise ProtocolError if a shard cannot take over this state. version: its own version."""
    if view.clock or view.fastest >= 0 or version:
        raise ProtocolError(f"shard {view.shard} has begun and cannot take over a state")
    if len(state.watermarks) != view.workers:
        raise ProtocolError(
            f"the state of shard {state.shard} is of {len(state.watermarks)} workers, and the "
            f"run has {view.workers}"
        )
    size = block.read().nbytes
    if state.parameters.nbytes != size:
        raise ProtocolError(
            f"the state of shard {state.shard} has {state.parameters.nbytes} bytes of "
            f"parameters, and shard {view.shard} has {size}"
        )
