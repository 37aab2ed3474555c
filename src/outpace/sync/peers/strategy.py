"""The interface of a strategy without servers, and the options that several of them have.

A strategy is one file of this folder: a frozen dataclass with its options, its program (`train`)
and the traits below, which tell a runtime what the program needs. A class from a user's file
derives from `PeerStrategy` in the same way. A strategy of the library also needs its class in the
list of `sync/strategies.py`, and a line in `STRATEGIES` of tests/contracts/test_peer_strategies.py;
`python -m docs.reference` then describes its options.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, TypeAlias

from outpace.blocks.narrowing import Wire
from outpace.optim import Optimizer
from outpace.support.checks import LARGEST, Positive
from outpace.sync.peers.context import PeerContext
from outpace.sync.strategy import Strategy

AllReduce: TypeAlias = Literal["ring", "tree"]  # route of the messages of an all-reduce
Buffers: TypeAlias = Literal["average", "own"]  # what workers do with a script's model buffers
SERVICE_TIMES: Final = ("push_time", "pull_time", "update_time", "judge_time")
OF_SERVERS: Final = (  # keys of a configuration that only strategies with servers can have
    *("servers", "sync_changes", "conditions", "colocate", "pull", "skip"),
    *SERVICE_TIMES,
    *("service_size", "slicing", "overlap", "on_server_loss"),
)


class PeerStrategy(Strategy, ABC):
    """A strategy without servers: options, program and traits.

        @dataclass(frozen=True, slots=True)
        class EveryOther(outpace.sync.PeerStrategy):
            kind: str = "every-other"

            async def train(self, me: PeerContext) -> None:
                model = me.common()
                async for iteration in iterations(me, model):  # outpace.sync.iterations
                    if iteration.number % 2 == 0:
                        reduced = await me.begin_all_reduce(iteration.gradient).result()
                        model.commit(reduced.mean, 1, reduced.weight)

    `PeerContext` describes what a program can ask of `me`.
    """

    __slots__ = ()

    has_servers: ClassVar[bool] = False
    excludes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            OF_SERVERS, "{kind} has no servers: leave it out; a variant with servers can have it"
        ),
        "network.delays": "{kind} has no servers, so no push, pull or reply can be late",
        "faults.servers": "the strategy has no servers: leave it out",
        "faults.schedule.server": "the strategy has no servers: leave it out",
    }

    # Traits. The final model is the common one; without one it is the mean of the workers' own.
    has_common: ClassVar[bool] = True  # all workers change a common model by the same commits
    has_own: ClassVar[bool] = False  # each worker changes a separate model
    uses_replica: ClassVar[bool] = False  # takes steps on replicas of the common model
    # Passes each gradient that it uses to an all-reduce unchanged, before it computes the next one,
    # and asks only for the mean: a runtime can then divide and check gradients while they are sent.
    averages_gradients: ClassVar[bool] = False
    # A gradient may change parameters that are newer than the parameters it was computed at.
    has_stale_gradients: ClassVar[bool] = False
    # Averages each gradient as DistributedDataParallel does: a script with it takes its own steps.
    is_ddp: ClassVar[bool] = False
    saved_apart: ClassVar[bool] = False  # a worker's `may_save` says nothing about the others

    @property
    def can_be_saved(self) -> bool:
        """True if the program calls `me.may_save`, so that a run can be resumed."""
        return False

    def refused_keys(self, workers: int) -> dict[str, str]:
        found = Strategy.refused_keys(self, workers)
        if not self.can_be_saved:
            found["checkpoint"] = (
                f"the state that the workers of {self.kind} have besides their models cannot be "
                "saved yet; leave it out"
            )
        return found

    @abstractmethod
    async def train(self, me: PeerContext) -> None:
        """Run one worker until `me.must_stop`; the worker leaves the run when this returns."""

    def common_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Return the optimizer that takes the steps of the common model.

        Args:
            optimizer: the run's optimizer, which takes the steps of the workers' own models.
        """
        return optimizer

    @property
    def all_reduce(self) -> AllReduce:
        """Route of the messages of an all-reduce."""
        return "ring"

    @property
    def timeout_s(self) -> float:
        """Seconds that workers of a real run wait for a worker to join an all-reduce."""
        return LARGEST

    @property
    def buffers(self) -> Buffers:
        """Treatment of the buffers of a script's model, such as BatchNorm's averages."""
        return "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceStrategy(PeerStrategy):
    """Options of strategies that all-reduce.

    Args:
        all_reduce: route of the messages.
        wire: precision in which values are sent.
        timeout_s: seconds in which all workers must join an all-reduce after the first worker; in a
            real run, a worker that is later ends the run.

    Raises:
        ValueError: if `timeout_s` is not positive.
    """

    all_reduce: AllReduce = "ring"
    wire: Wire = "full"
    timeout_s: Positive = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferAveragingStrategy(AllReduceStrategy):
    """Options of strategies that can average model buffers in the same all-reduces.

    Args:
        buffers: whether the buffers of a script's model, such as BatchNorm's averages, are averaged
            as well, or each worker keeps its own.
    """

    buffers: Buffers = "average"
