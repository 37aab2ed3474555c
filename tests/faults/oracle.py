"""The oracle: it reads the parameters, which count the gradients, and judges a run by them.

The gradient of worker w in iteration i is 1 at place (w, i) of every shard, and a step of plain
SGD subtracts the sum, so the parameters are minus the number of times that each gradient is in
them. With momentum m, a gradient of iteration i has the weight 1 + m + ... + m^(n−1−i) after n
steps.

What may be missing is a set of (worker, iteration). It is noted where a failure loses something,
taken back when the run goes back to a checkpoint, and compared with the parameters at the end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import torch
from tests.faults.scenario import KNOWN, Scenario
from torch import Tensor

from outpace.blocks.block import Value
from outpace.sync.checkpoint.state import ShardState, gaps
from outpace.sync.messages import Reply

Pair: TypeAlias = tuple[int, int]  # worker, iteration


class Violation(AssertionError):
    """A promise that a run has broken."""


class Oracle:
    """The promises of one run.

    Attributes:
        may_miss: gradients that need not be in the parameters.
        updates_lost: gradients that some shards have and others lack, as the run counts them.
        computed: the last iteration that each worker has computed; absent: nobody waits for it.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._strategy = scenario, KNOWN[scenario.strategy]
        self.begin()
        momentum, steps = self._strategy.momentum, range(scenario.iterations, 0, -1)
        powers = [sum(momentum**k for k in range(n)) for n in steps]
        self._most_on_the_way = _most_on_the_way(scenario)
        self._weights = torch.tensor(powers, dtype=torch.float64)

    # -- what is noted -------------------------------------------------------------

    def lost_worker(self, worker: int, arrived: int, sent: int, first: int) -> None:
        """A worker is lost. All shards have its iterations up to `arrived`; it sent `sent`.

        first: iteration with which its next process begins.
        """
        pushes = {(worker, iteration) for iteration in range(arrived + 1, sent + 1)}
        lost = len(pushes - self.may_miss)
        if lost > self._most_on_the_way:
            raise Violation(f"worker {worker} lost {lost} pushes, up to iteration {sent}")
        self.note(worker, arrived + 1, sent)
        self._takes_part(worker, first)

    def note(self, worker: int, first: int, last: int) -> None:
        """These gradients of a worker may be missing."""
        self.may_miss.update((worker, iteration) for iteration in range(first, last + 1))

    def begin(self) -> None:
        """The run begins from its beginning."""
        self.may_miss: set[Pair] = set()
        self.updates_lost = 0
        self.computed: dict[int, int] = dict.fromkeys(range(self._scenario.workers), -1)

    def leaves(self, worker: int) -> None:
        """The run continues without a worker from now on."""
        self.computed.pop(worker, None)

    def gone(self, worker: int, arrived: int) -> None:
        """All shards have its iterations up to `arrived` of a worker that has left."""
        self.note(worker, arrived + 1, self._scenario.iterations - 1)

    def ended(self, reason: str, finished: Collection[int]) -> None:
        """The run has ended with an error: only because the last worker is lost."""
        if finished or len(self.computed) > 1:
            others = sorted(self.computed.keys() | set(finished))
            raise Violation(f"the run ends with the workers {others}: {reason}")

    def _takes_part(self, worker: int, first: int) -> None:
        """A worker that computes again must not miss what it computes."""
        self.may_miss = {(w, i) for w, i in self.may_miss if w != worker or i < first}

    def went_back(
        self, states: Sequence[ShardState], missing: Iterable[Pair], updates_lost: int
    ) -> None:
        """The run continues from saved states; `missing`, `updates_lost`: what they were then."""
        self.may_miss = set(missing)
        self.updates_lost = updates_lost + gaps(states)
        found = 0
        for worker in range(self._scenario.workers):
            marks = [max(state.watermarks[worker], state.clock - 1) for state in states]
            highest = max(state.watermarks[worker] for state in states)
            self.note(worker, min(marks) + 1, highest)
            found += max(0, highest - min(marks))
            self.computed[worker] = max(max(marks), highest)
            self._takes_part(worker, self.computed[worker] + 1)
        if found > gaps(states):
            raise Violation(f"{found} gradients are lost, and {gaps(states)} are counted")

    # -- what is checked -----------------------------------------------------------

    def starts(self, worker: int, iteration: int, parameters: Sequence[Value]) -> None:
        """Check the bound, and that the parameters have what it promises, when a worker starts."""
        bound = self._strategy.bound
        if bound is None:
            return
        last = iteration - 1 - bound  # of all others
        for other, computed in self.computed.items():
            if computed < last:
                raise Violation(
                    f"worker {worker} starts iteration {iteration} with a bound of {bound}, and "
                    f"worker {other} has computed {computed}"
                )
        for shard, each in enumerate(parameters if last >= 0 else ()):
            absent = (self.counts(each)[:, : last + 1] == 0).nonzero().tolist()
            for other, at in absent:
                if other in self.computed and (other, at) not in self.may_miss:
                    raise Violation(
                        f"worker {worker} starts iteration {iteration} with a bound of {bound} and "
                        f"parameters of shard {shard} without iteration {at} of worker {other}"
                    )

    def reply(self, reply: Reply) -> None:
        """Check parameters that are sent to a worker."""
        assert isinstance(reply.parameters, Tensor)
        if not self._strategy.momentum:
            self._at_most_once(f"a reply of shard {reply.shard}", self.counts(reply.parameters))

    def state(self, state: ShardState) -> None:
        """Check the state of a shard: it has what its watermarks say, once."""
        strategy, where = self._strategy, f"the saved state of shard {state.shard}"
        if strategy.momentum:
            return
        counts = self._all_counts(state)
        self._at_most_once(where, counts)
        for worker, mark in enumerate(state.watermarks):
            if counts[worker, mark + 1 :].any():
                raise Violation(f"{where} has more of worker {worker} than its watermark {mark}")
            for iteration in range(0 if strategy.loses else mark + 1):
                if counts[worker, iteration] == 0 and (worker, iteration) not in self.may_miss:
                    raise Violation(f"{where} lacks iteration {iteration} of worker {worker}")

    def checkpoint(self, states: Sequence[ShardState]) -> None:
        """Check a checkpoint that is whole."""
        if not self._strategy.exact:
            return
        clocks = {state.clock for state in states}
        if len(clocks) > 1:
            raise Violation(f"a checkpoint has shards at the clocks {sorted(clocks)}")
        for state in states:
            if state.pending or max(state.watermarks) >= state.clock:
                raise Violation(f"shard {state.shard} was saved within iteration {state.clock}")

    def end(self, states: Sequence[ShardState]) -> None:
        """Check the parameters at the end of the run."""
        counts = torch.stack([self.counts(state.parameters) for state in states])
        self._at_most_once("the result", counts)
        if self._strategy.loses:
            return
        in_part = int(((counts.amax(0) > 0) & (counts.amin(0) == 0)).sum())
        if in_part > self.updates_lost:
            raise Violation(
                f"{in_part} gradients are in some shards only, and {self.updates_lost} are counted"
            )
        for worker, iteration in (counts.amin(0) < self._weights).nonzero().tolist():
            if (worker, iteration) not in self.may_miss:
                shards = (counts[:, worker, iteration] == 0).nonzero().flatten().tolist()
                raise Violation(
                    f"the gradient of worker {worker}, iteration {iteration}, is missing in the "
                    f"shards {shards}"
                )

    def _all_counts(self, state: ShardState) -> Tensor:
        """Return how often each gradient is in a state, those of unfinished iterations too."""
        counts = self.counts(state.parameters)
        for pending in state.pending:
            for _, part in pending.parts:
                counts = counts - self.counts(part)
        return counts

    def counts(self, parameters: Value) -> Tensor:
        """Return how often each gradient is in the parameters. Shape (workers, iterations)."""
        assert isinstance(parameters, Tensor)
        return -parameters.reshape(self._scenario.workers, self._scenario.iterations)

    def _at_most_once(self, where: str, counts: Tensor) -> None:
        if bool((counts > self._weights).any()):
            *_, worker, iteration = (counts > self._weights).nonzero()[0].tolist()
            raise Violation(f"{where} has iteration {iteration} of worker {worker} twice")
        if not self._strategy.momentum and not bool(((counts == 0) | (counts == 1)).all()):
            raise Violation(f"{where} has a part of a gradient")


def _most_on_the_way(scenario: Scenario) -> float:
    """Return how many pushes of one worker may be on their way at the same time."""
    strategy = KNOWN[scenario.strategy]
    if strategy.loses:  # a worker passes over iterations
        return math.inf
    skipped = 0 if strategy.skip is None else strategy.skip.in_a_row
    ahead = 1 if strategy.pull.quorum_percent == 100 else strategy.pull.ahead
    return max(ahead, strategy.policy(scenario.workers).pushes_in_a_row + skipped)
