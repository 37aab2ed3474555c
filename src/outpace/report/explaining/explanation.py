"""The slow workers and links of a run, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from outpace.predict.slow import Pattern

Kind: TypeAlias = Literal["worker", "link"]
VERSION: Final = 1  # version of the plain data


@dataclass(frozen=True, slots=True)
class Period:
    """Consecutive slow iterations.

    Args:
        first: First iteration.
        last: Last iteration; None: slow until the end of the run.
        start_s: Beginning of the first iteration, in s since the start of the run.
        end_s: End of the last iteration.
        factor: Time of these iterations as a multiple of the others' time.
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
        server: Server at the other end of the link; None for a worker, and for its link to all
            servers.
        pattern: `steady`: one period until the end; `once`: one period, which ended; `bursts`:
            several periods.
        factor: Factor of the periods, weighted by their iterations.
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
        """Name of the cause, such as `worker 3`, or `link of worker 3 to server 0`."""
        if self.kind == "worker":
            return f"worker {self.worker}"
        to = "" if self.server is None else f" to server {self.server}"
        return f"link of worker {self.worker}{to}"


@dataclass(frozen=True, slots=True)
class Gain:
    """The time of the run after a change, simulated with the run times that it recorded.

    Args:
        change: Text of the change, such as `worker 3 as fast as the others`.
        cause: Name of the cause that the change removes; empty: another change.
        run_s: Seconds that the run would take for the same number of gradients.
        saved_s: Seconds by which this is shorter than the recorded run; negative: longer.
    """

    change: str
    cause: str
    run_s: float
    saved_s: float


@dataclass(frozen=True, slots=True)
class Faster:
    """Workers that are faster than the others, if most workers are slow.

    Args:
        workers: Numbers of the faster workers; fewer than half of all.
        factor: Run time of the others as a multiple of the faster workers' run time.
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
        iterations: Number of iterations in which workers were compared.
        waiting_s: Seconds that a worker waited for others, as a mean over the workers.
        causes: The most expensive first.
        compared: `worker` and `link`, if they were compared.
        notes: Sentences about comparisons that were not made, and the reasons.
        gains: Empty unless asked for.
        faster: The fast workers, if most workers are slow: then the slow ones are no causes,
            because they are usual.
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
        """Seconds that all causes cost together."""
        return sum(cause.lost_s for cause in self.causes)

    def to_plain(self) -> dict[str, Any]:
        """Return the content of explain.json."""
        data = {"version": VERSION, **asdict(self), "lost_s": self.lost_s}
        for cause, plain in zip(self.causes, data["causes"], strict=True):
            plain["name"] = cause.name
        return data
