"""Random clusters and faults. A scenario is a function of its seed, and can be made simpler."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.papers.fluentps.global_barrier import GlobalBarrier
from benchmarks.papers.fluentps.ssptable import SspTable

from outpace.sync import (
    Apply,
    Asp,
    Bsp,
    Buffer,
    CutOff,
    DropStragglers,
    Dsps,
    PartialPush,
    PspSampling,
    Pssp,
    Scale,
    Ssp,
)
from outpace.sync.membership.events import OnLoss
from outpace.sync.policy import Policy
from outpace.sync.programs.partial_pull import PartialPull
from outpace.sync.programs.skipping import SkippedPull

SUM: Final = Scale.SUM
ON_LOSS: Final[tuple[OnLoss, ...]] = ("restart", "continue")
LEASE_S: Final = 0.5  # a process that stands still for longer is lost


_ALL_SERVERS: Final = PartialPull(quorum_percent=100)


@dataclass(frozen=True)
class Strategy:
    """The programs of workers and servers.

    policy: made from the number of workers. loses: True if it leaves out gradients of its own
    accord. bound: lead over the slowest worker that none may exceed; None: there is none. exact:
    True if all shards are saved between the same two iterations.
    """

    policy: Callable[[int], Policy]
    loses: bool = False
    bound: int | None = None
    exact: bool = False
    momentum: float = 0.0
    pull: PartialPull = _ALL_SERVERS
    skip: SkippedPull | None = None
    overlaps: bool = False  # workers push the part of each server when it is complete


STRATEGIES: Final = {
    "bsp": Strategy(lambda n: Bsp(scale=SUM), bound=0, exact=True),
    "bsp, momentum": Strategy(lambda n: Bsp(scale=SUM), bound=0, exact=True, momentum=0.5),
    "bsp, on arrival": Strategy(
        lambda n: Bsp(apply=Apply.ON_ARRIVAL, scale=SUM), bound=0, exact=True
    ),
    "ssp": Strategy(lambda n: Ssp(1, scale=SUM), bound=1),
    "ssp, soft": Strategy(lambda n: Ssp(2, buffer=Buffer.SOFT, scale=SUM), bound=2),
    "ssp, on advance": Strategy(lambda n: Ssp(2, apply=Apply.ON_ADVANCE, scale=SUM), bound=2),
    "asp": Strategy(lambda n: Asp(scale=SUM)),
    "pssp": Strategy(lambda n: Pssp(1, 0.5, scale=SUM)),
    "dsps": Strategy(lambda n: Dsps(1, 2, scale=SUM)),
    "psp-sampling": Strategy(lambda n: PspSampling(min(2, n - 1), 1, scale=SUM)),
    "ssptable": Strategy(lambda n: SspTable(2, scale=SUM), bound=2),
    "global barrier": Strategy(lambda n: GlobalBarrier(Bsp(scale=SUM)), bound=0, exact=True),
    "global barrier, ssp": Strategy(lambda n: GlobalBarrier(Ssp(1, scale=SUM)), bound=1),
    "half of the servers": Strategy(
        lambda n: Asp(scale=SUM), pull=PartialPull(quorum_percent=50, timeout_s=0.01)
    ),
    "skipped pulls": Strategy(
        lambda n: Ssp(1, scale=SUM), skip=SkippedPull(probability=0.4, in_a_row=3)
    ),
    "drop-stragglers": Strategy(
        lambda n: DropStragglers(max(1, n - 1), scale=SUM), loses=True, exact=True
    ),
    "partial-push": Strategy(
        lambda n: PartialPush(max(1, n - 1), timeout_s=0.03, scale=SUM), loses=True, exact=True
    ),
    "cutoff": Strategy(lambda n: CutOff(scale=SUM), loses=True, exact=True),
}

# Not among the strategies of `Scenario.of`, so that seeds stay what they are.
OVERLAPPING: Final = {
    f"{name}, overlapping": replace(STRATEGIES[name], overlaps=True)
    for name in ("bsp", "ssp", "asp", "half of the servers", "drop-stragglers")
}
KNOWN: Final = STRATEGIES | OVERLAPPING


_MORE: Final = (
    "bsp, momentum",
    "ssptable",
    "ssptable",
    "ssptable",
    "global barrier",
    "global barrier, ssp",
    "cutoff",
    "cutoff",
)


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong `at_s` seconds after the start.

    kind:
        crash: worker `node` is killed. `flag`: what it has sent still arrives.
        freeze: worker `node` stands still, for more or less than the lease, and continues. `flag`:
            it cannot be killed meanwhile, and sends messages after its place was taken.
        server: server `node` is killed.
        freeze server: server `node` stands still.
        both: worker `node` is killed, and `for_s` / 20 later the server of this number, modulo that
            of the servers.
        late: server `node` is killed `for_s` / 100 after a worker has done its last iteration.
        launcher: everything ends at once, and is resumed.
        slow: messages take 20 times as long.
        partition: nothing reaches worker `node`, and nothing that it sends arrives.
        lose, repeat: the next message of worker `node` to a server is lost, or arrives twice.
        overtake: it arrives after those that follow it.
        lose last: so is its next `Leave`.
    for_s: how long it lasts.
    """

    kind: str
    at_s: float
    node: int = 0
    for_s: float = 0.1
    flag: bool = False


_WORKER: Final = (
    "crash",
    "crash",
    "crash",
    "both",
    "both",
    "freeze",
    "freeze",
    "partition",
    "lose",
    "lose last",
    "repeat",
)
_SERVER: Final = ("server", "server", "freeze server", "late")
_ALL: Final = ("launcher", "slow")


@dataclass(frozen=True)
class Scenario:
    """A cluster, what it runs, and its faults.

    latency_s: the longest, of a message. on_loss: of a worker, `restart` or `continue`.
    """

    seed: int
    strategy: str
    workers: int
    servers: int
    iterations: int
    checkpoint_s: float
    latency_s: float
    faults: tuple[Fault, ...]
    on_loss: OnLoss = "restart"

    @classmethod
    def of(cls, seed: int) -> Scenario:
        """Return the scenario of a seed."""
        draw = random.Random(3000 + seed)
        names = [*STRATEGIES, *_MORE]  # more of the special
        strategy = names[seed % len(names)]  # so that a few seeds try them all
        workers, servers = draw.randint(2, 5), draw.randint(1, 3)
        iterations = draw.randint(4, 16)
        until_s = 0.15 * iterations
        kinds: tuple[str, ...] = _SERVER + _ALL
        if not STRATEGIES[strategy].momentum:  # there every gradient counts by its place
            kinds += _WORKER
        faults = []
        for _ in range(draw.choice((1, 2, 4, 8, 12, 16))):
            kind = draw.choice(kinds)
            node = draw.randrange(servers if kind in _SERVER else workers)
            for_s = draw.choice((0.0, 0.05, 0.2, 0.4, 0.8))
            at_s, flag = round(draw.uniform(0, until_s), 3), draw.random() < 0.5
            if kind == "repeat" and flag:
                kind = "overtake"
            faults.append(Fault(kind, at_s, node, for_s, flag))
        faults.sort(key=lambda fault: fault.at_s)
        every_s, latency_s = draw.choice((0.1, 0.2, 0.4)), draw.choice((0.01, 0.03, 0.1))
        on_loss = draw.choice(ON_LOSS)
        size = workers, servers, iterations, every_s, latency_s
        return cls(seed, strategy, *size, tuple(faults), on_loss)

    def simpler(self) -> Iterator[Scenario]:
        """Yield scenarios with less in them: faults, iterations, workers, servers."""
        for place in range(len(self.faults)):
            faults = self.faults[:place] + self.faults[place + 1 :]
            yield replace(self, faults=faults)
        for iterations in {self.iterations // 2, self.iterations - 1} - {0, self.iterations}:
            yield replace(self, iterations=iterations)
        if self.workers > 2:
            yield replace(self, workers=self.workers - 1)._fitting()
        if self.servers > 1:
            yield replace(self, servers=self.servers - 1)._fitting()
        if self.checkpoint_s < 10:
            yield replace(self, checkpoint_s=10.0)
        for place, fault in enumerate(self.faults):
            if fault.for_s:
                others = self.faults[:place], self.faults[place + 1 :]
                briefer = replace(fault, for_s=0.0)
                yield replace(self, faults=(*others[0], briefer, *others[1]))

    def _fitting(self) -> Scenario:
        """Return this scenario without the faults of nodes that do not exist any more."""
        most = dict.fromkeys((*_WORKER, "overtake"), self.workers) | dict.fromkeys(
            _SERVER, self.servers
        )
        faults = (each for each in self.faults if each.node < most.get(each.kind, 2**31))
        return replace(self, faults=tuple(faults))
