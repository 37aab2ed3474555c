"""The interface of server policies, and the view of a shard that a policy judges.

To add a policy, write a file in `policies/`, add the class to the list in `sync/strategies.py`, and
a line to `CASES` in tests/contracts/test_policies.py; `python -m docs.reference` then describes its
options. A policy in a user's file needs none of these steps.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

from outpace.blocks.narrowing import Wire
from outpace.support.units import Time
from outpace.sync.decision import Decision, Reason
from outpace.sync.messages import Pull
from outpace.sync.strategy import Strategy

if TYPE_CHECKING:
    from outpace.optim import Optimizer
    from outpace.predict.rules.settings import CutOffSettings
    from outpace.sync.programs.context import WorkerProgram


class Buffer(StrEnum):
    """The clock under which a held pull is filed (FluentPS, algorithm 1 and section III-C).

    LAZY: the pull is answered when the shard has finished the puller's iteration i, at clock i+1,
    so the parameters include every gradient up to i. SOFT: it is answered at the next clock, V+1.
    """

    LAZY = "lazy"
    SOFT = "soft"

    def release_clock(self, pull: Pull, view: ShardView) -> int:
        """Return the clock at which a pull that is held now is answered."""
        finished = view.clock if self is Buffer.SOFT else max(view.clock, pull.iteration)
        return finished + 1


class Apply(StrEnum):
    """When a gradient changes the parameters.

    ON_ARRIVAL: each gradient separately (FluentPS, algorithm 1). ON_ADVANCE: one update per
    iteration, when the clock advances.
    """

    ON_ARRIVAL = "on-arrival"
    ON_ADVANCE = "on-advance"


class Scale(StrEnum):
    """The weight of the gradients of an update: a divisor, or a factor of the learning rate.

    MEAN: the step uses their mean; on arrival each gradient is divided by the number of workers.
    SUM: their sum. LINEAR, on advance only: their mean, with the learning rate multiplied by their
    number. STALENESS, on arrival only: each gradient is divided by its staleness, at least by 1.
    """

    MEAN = "mean"
    SUM = "sum"
    # PSP-SGD, algorithm 1, line 13. With plain SGD it equals SUM; other optimizers and weight decay
    # do not take steps in proportion to the gradient.
    LINEAR = "linear"
    # Zhang, Gupta, Lian and Liu, Staleness-aware Async-SGD, IJCAI 2016, equation 5.
    STALENESS = "staleness"


class ShardView(Protocol):
    """The state of a shard that a policy, or a user's condition, may read.

    Iterations count from 0; a worker's progress is the highest iteration that it has pushed.
    """

    @property
    def shard(self) -> int:
        """The number of the shard."""

    @property
    def clock(self) -> int:
        """V: the number of iterations this shard has finished."""

    @property
    def workers(self) -> int:
        """The number of workers that exist or have existed; all their numbers are below it."""

    @property
    def live(self) -> int:
        """The number of workers in the run, without workers that have left or are left out.

        A worker that waits in a collective of its script is left out of the iterations that it has
        not pushed.
        """

    @property
    def reached(self) -> int:
        """The number of live workers that have pushed iteration V or a later one."""

    @property
    def pushed(self) -> int:
        """The number of workers that have pushed iteration V itself, with or without a gradient.

        It is less than `reached` if a worker has skipped V, as with partial pull; that worker's
        gradient stays in the later iteration.
        """

    @property
    def slowest(self) -> int:
        """The lowest progress of a live worker; -1: that worker has not pushed yet."""

    @property
    def fastest(self) -> int:
        """The highest iteration pushed by any worker; -1: none yet."""

    def progress(self, worker: int) -> int:
        """Return the highest iteration that this worker has pushed; -1: none yet."""

    def is_live(self, worker: int) -> bool:
        """True if this worker is counted by `live`."""

    def count(self, iteration: int) -> int:
        """Return how many live workers have pushed this iteration or a later one."""

    @property
    def awaited(self) -> int | None:
        """The number of gradients that count for iteration V and have not arrived yet.

        It is None until the scheduler has decided which gradients count. Only for policies with a
        `cut_off`.
        """

    def significance(self, worker: int) -> float:
        """Return |g| / |w| of this worker's last gradient on this shard; 0.0: none yet.

        Only for policies that have `uses_significance`.
        """

    def spared(self, worker: int) -> int:
        """Return the highest lead with which a draw let this worker pass since it was held.

        -1: none since then, or since the policy was replaced.
        """

    def laggard(self) -> int:
        """Return a live worker that has not pushed iteration V, if there is one."""

    def last_push(self, worker: int) -> Time:
        """Return the time of this worker's last push, in ns since the start of the run."""

    def step_time(self, worker: int) -> Time:
        """Return the ns between this worker's last push and the answer before that push."""


class Policy(Strategy, ABC):
    """Decides when a shard may answer a pull and when it may finish an iteration.

        @dataclass(frozen=True, slots=True)
        class Lead(outpace.sync.Policy):  # sync: {kind: python, target: "mine.py:Lead", ...}
            lead: int  # iterations that a worker may be ahead of the slowest

            def may_answer(self, pull: Pull, view: ShardView) -> Decision:
                ahead = pull.iteration - view.clock
                if ahead < self.lead:
                    return Decision(None, Reason.WITHIN_BOUND, ahead, bound=self.lead)
                return Decision(pull.iteration + 1, Reason.BEYOND_BOUND, ahead, bound=self.lead)

    A policy is a frozen dataclass whose fields, such as `kind`, `apply` and `scale`, are its
    configuration. It has no clock, randomness, socket or tensor: it judges a view of the shard and
    returns a decision. A policy must implement `may_answer`; a built-in policy must also have
    `kind`. The other members are for policies that need more than the usual programs of workers and
    servers.
    """

    __slots__ = ()

    acknowledges: ClassVar[bool] = False
    """True if servers confirm every push with an `Ack`."""

    @property
    def apply(self) -> Apply:
        """When gradients change the parameters."""
        return Apply.ON_ARRIVAL

    @property
    def scale(self) -> Scale:
        """The divisor of gradients, or the factor of the learning rate."""
        return Scale.MEAN

    @property
    def buffer(self) -> Buffer | None:
        """When a pull that a user's condition refuses is answered; None: it is asked again."""
        return None

    @property
    def uses_significance(self) -> bool:
        """True if the policy calls `view.significance`, which costs two norms per gradient."""
        return False

    @property
    def cut_off(self) -> CutOffSettings | None:
        """The rule by which a scheduler ends iterations for all servers at once.

        None: each server finishes its iterations by itself.
        """
        return None

    @property
    def scheduler(self) -> Policy | None:
        """The policy of a scheduler that lets workers continue, for all servers at once.

        Its shard has no parameters; workers push their progress to it. None: no scheduler.
        """
        return None

    @property
    def leaves_behind(self) -> bool:
        """True if a server may finish an iteration that a live worker has not pushed.

        Such a worker continues with a later iteration, so workers take different numbers of steps
        in the same time. They then tell the servers when they wait in a collective of their script
        (`Pause`), so that no worker waits for them. By default, True if `patience_s` is overridden.
        """
        return type(self).patience_s is not Policy.patience_s

    @property
    def pushes_in_a_row(self) -> int:
        """The number of pushes that a worker may send to a server without a pull in between."""
        return 1

    @abstractmethod
    def may_answer(self, pull: Pull, view: ShardView) -> Decision:
        """Judge a pull: answer it now, or hold it until a later clock.

        Args:
            pull: the request of a worker that has finished `pull.iteration`.
            view: the state of the shard.

        Returns:
            The decision with its reason. Its release clock must lie beyond `view.clock`.
        """

    def patience_s(self, view: ShardView) -> float:
        """Return the seconds that the shard waits for pushes before it finishes iteration V.

        0.0: the shard finishes V now. Infinite: the shard waits until another worker has pushed or
        left. A finite time counts from the first finite answer for this V. By default the shard
        waits for all live workers: the push condition count[V] = N (FluentPS, table III), where N
        does not include workers that have left.

        Args:
            view: the state of the shard.
        """
        return 0.0 if view.reached >= view.live else math.inf

    def worker_program(self, workers: int, optimizer: Optimizer | None) -> WorkerProgram | None:
        """Return the program of the workers; None: the usual program.

        The program must begin with `WorkerContext.first_iteration`; otherwise its runs cannot be
        resumed.

        Args:
            workers: number of workers in the run.
            optimizer: the servers' optimizer; None if a script has its own optimizer.
        """
        return None

    def refused_keys(self, workers: int) -> dict[str, str]:
        found = Strategy.refused_keys(self, workers)
        if self.worker_program(workers, None) is None:
            return found
        own = f"{self.kind} has separate workers, which"
        own_keys = {
            "skip.pull": f"{own} decide when to pull",
            "overlap": f"{own} push whole gradients",
        }
        return own_keys | found

    def problems(self, workers: int) -> Iterator[str]:
        """Yield the problems of this policy in a run with `workers` workers, as `key: why`."""
        if self.scale is Scale.STALENESS and self.apply is not Apply.ON_ARRIVAL:
            yield "scale: staleness belongs to a single gradient: it needs apply: on-arrival"
        if self.scale is Scale.LINEAR and self.apply is not Apply.ON_ADVANCE:
            yield (
                "scale: linear multiplies the learning rate by the number of gradients in an "
                "update: it needs apply: on-advance"
            )


@dataclass(frozen=True, slots=True)
class WirePolicy(Policy):
    """The base of policies with the option `wire`.

    Attributes:
        wire: precision in which gradients and parameters are sent; the same in all policies of a
            run, including the policies of `sync_changes`.
    """

    wire: Wire = field(default="full", kw_only=True)


def bounded(
    pull: Pull, view: ShardView, bound: int, buffer: Buffer = Buffer.LAZY, *, hard: bool = True
) -> Decision:
    """Return the decision of the pull condition i < V + bound (FluentPS, table III).

    hard: True if no lead may exceed the bound, so that the pull is not answered before the
    condition holds; False if leads may exceed the bound, as in PSSP, which lets workers pass it at
    random.
    """
    lead = pull.iteration - view.clock
    if lead < bound:
        return Decision(None, Reason.WITHIN_BOUND, lead, bound)
    release = buffer.release_clock(pull, view)
    if hard:
        release = max(release, pull.iteration - bound + 1)
    return Decision(release, Reason.BEYOND_BOUND, lead, bound)


def quorum_arrived(view: ShardView, quorum: int, timeout_s: float = 0.0) -> float:
    """Return the patience for a quorum of pushes of iteration V and then `timeout_s` seconds.

    Workers that have skipped V have no gradient in V, so they are not in the quorum. An update has
    fewer than `quorum` gradients only if all workers have responded (PSP-SGD, algorithm 1,
    line 12).

    Args:
        view: the state of the shard.
        quorum: number of gradients to wait for.
        timeout_s: further seconds after the quorum.
    """
    if view.reached >= view.live:
        return 0.0
    return timeout_s if view.pushed >= quorum else math.inf
