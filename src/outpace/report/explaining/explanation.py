"""The slow workers and links of a run, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from outpace.predict.slow import Pattern

Kind: TypeAlias = Literal["worker", "link"]
VERSION: Final = 1  # of the plain data


@dataclass(frozen=True, slots=True)
class Period:
    """Consecutive slow iterations.

    Args:
        first: First iteration.
        last: Last iteration; None: slow until the end of the run.
        start_s: Begin of the first iteration, in s since the start of the run.
        end_s: End of the last one.
        factor: Its time as a multiple of the others'.
    """

    first: int
    last: int | None
    start_s: float
    end_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class Cause:
    """A worker, or its link, that is slower than the others.

    Args:
        worker: Number of the worker.
        server: At the other end of the link; None for a worker, and for its link to all servers.
        pattern: `steady`: one period until the end; `once`: one that ended; `bursts`: several.
        factor: Of the periods, weighted by their iterations.
        lost_s: Seconds by which the run was longer because of it.
        share: `lost_s` as a share of the run's duration.
        named: Iteration after which it could be named.
    """

    kind: Kind
    worker: int
    server: int | None
    pattern: Pattern
    factor: float
    lost_s: float
    share: float
    named: int
    periods: tuple[Period, ...]

    @property
    def name(self) -> str:
        """Such as `worker 3`, or `link of worker 3 to server 0`."""
        if self.kind == "worker":
            return f"worker {self.worker}"
        to = "" if self.server is None else f" to server {self.server}"
        return f"link of worker {self.worker}{to}"


@dataclass(frozen=True, slots=True)
class Gain:
    """The time of the run after a change, simulated with the run times that it recorded.

    Args:
        change: In words, such as `worker 3 as fast as the others`.
        cause: Name of the cause that is removed; empty: another change.
        run_s: Seconds that the run would take for the same number of gradients.
        saved_s: Seconds less than it took; negative: more.
    """

    change: str
    cause: str
    run_s: float
    saved_s: float


@dataclass(frozen=True, slots=True)
class Faster:
    """Workers that are faster than the others, where most workers are slow.

    Args:
        workers: Their numbers; fewer than half of all.
        factor: Run time of the others as a multiple of theirs.
    """

    workers: tuple[int, ...]
    factor: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The slow workers and links of a run, and their costs.

    Args:
        run: Folder of the run.
        clock: `wall` for a real run, `virtual` for a simulated one.
        time_s: Duration of the run on this clock.
        strategy: Kind of the strategy.
        iterations: Iterations in which workers were compared.
        waiting_s: Seconds that a worker waited for others, mean of the workers.
        causes: The most expensive first.
        compared: Of `worker` and `link`, those that were compared with each other.
        notes: Sentences about what was not compared, and why.
        gains: Empty unless asked for.
        faster: The fast workers, if most are slow: then the slow ones are no causes, since they
            are what is usual.
    """

    run: str
    clock: Literal["wall", "virtual"]
    time_s: float
    strategy: str
    workers: int
    servers: int
    iterations: int
    waiting_s: float
    causes: tuple[Cause, ...]
    compared: tuple[Kind, ...]
    notes: tuple[str, ...] = ()
    gains: tuple[Gain, ...] = ()
    faster: Faster | None = None

    @property
    def lost_s(self) -> float:
        """Seconds of all causes together."""
        return sum(cause.lost_s for cause in self.causes)

    def to_plain(self) -> dict[str, Any]:
        """Return the content of explain.json."""
        data = {"version": VERSION, **asdict(self), "lost_s": self.lost_s}
        for cause, plain in zip(self.causes, data["causes"], strict=True):
            plain["name"] = cause.name
        return data
