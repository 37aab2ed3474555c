"""A user's script in the process of a virtual worker, and its pipe to the simulation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn

from outpace.blocks.block import parameters_digest
from outpace.config.experiment import Experiment
from outpace.engine.scripts.ending import EndedEarly, RunOver
from outpace.engine.scripts.gradient import FirstGradient
from outpace.engine.scripts.model import ScriptModel
from outpace.engine.scripts.worker import Presence
from outpace.simulation.scripts.child.pipe import ScriptPipe
from outpace.simulation.scripts.messages import Attached, Begin, Computes, Logged, Over, Warns
from outpace.sync.messages import worker_name


class PipedDriver:
    """The part of a virtual worker that does not depend on how its script trains.

    Implements `Driver`.

    Args:
        pipe: pipe to the simulation.
        takes_steps: True: the script's optimizer takes its steps in this process.
        follows: True: the script's own collectives and optimizer do the training.
    """

    def __init__(
        self,
        pipe: ScriptPipe,
        number: int,
        experiment: Experiment,
        script: ScriptModel,
        *,
        takes_steps: bool,
        follows: bool = False,
    ) -> None:
        self.name, self.presence, self.script = worker_name(number), Presence(), script
        self._pipe, self._number, self._takes_steps = pipe, number, takes_steps
        self._follows = follows
        self._iteration = 0
        self._clock = Stopwatch()
        self._told: tuple[int, str] | None = None  # iteration and digest of the first gradient
        self._first = FirstGradient(self._tell_first, wanted=experiment.workers > 1)
        pipe.on_over = self._exit

    @property
    def is_ended_early(self) -> bool:
        return self._pipe.is_ended_early

    def log(self, values: Mapping[str, float]) -> None:
        self._pipe.send(Logged(dict(values)))

    def out_of_time(self) -> AbstractContextManager[None]:
        return self._clock.paused()

    def tell(self, text: str) -> None:
        """See `Place.tell`."""
        if not self.presence.is_copy:
            self._pipe.send(Warns(text))

    def _tell_first(self, iteration: int, digest: str) -> None:
        self._told = iteration, digest

    def _attach(self, **what: Any) -> Begin:
        """Announce the model to the simulation; return the answer. what: see `Attached`."""
        script = self.script
        flat = script.flat().cpu()
        self._pipe.send(
            Attached(
                layers=script.layers,
                dtype=script.dtype,
                optimizer=type(script.optimizer).__name__,
                takes_steps=self._takes_steps,
                members=script.members,
                digest=parameters_digest([flat]),
                parameters=flat if self._number == 0 else None,
                buffers=script.read_buffers(unsaved=True),
                used=script.used(),
                is_followed=self._follows,
                **what,
            )
        )
        del flat  # the message is as large as the model
        begin = self._pipe.receive()
        assert isinstance(begin, Begin)
        return begin

    def _tell_computes(self, *, is_abortable: bool) -> None:
        """Tell the simulation about the first forward pass of an iteration."""
        self._pipe.send(Computes(is_abortable, self._clock.has_evaluated))
        self._clock.computes()

    # -- the end -------------------------------------------------------------------------------

    def _exit(self, over: Over) -> NoReturn:
        """Exit the script because the run is over."""
        if not over.reason:
            self.presence.has_left = True
            raise EndedEarly
        if not self.presence.has_left:
            if over.discard:
                self._discard()
            self.leave(fetch=False, sets=False)
        print(f"outpace: {over.reason}; the script of {self.name} ends here", flush=True)  # noqa: T201
        raise RunOver(0)

    def _discard(self) -> None:
        """Undo the changes of the present step, because it was cut off."""

    def leave(self, *, fetch: bool, sets: bool) -> None:
        """See `Driver`."""
        raise NotImplementedError

    def end(self, error: Exception | None) -> None:
        """Do nothing: `run_script` reports the end of the script."""

    def close(self) -> None:
        """Do nothing, because the pipe is closed with the process."""


class Stopwatch:
    """Measures how long the script computes a gradient, for the law `measured`.

    The time between a step and the next forward pass counts, because data is loaded in it, unless
    the script has evaluated its model in this time without `outpace.untimed`.

    Attributes:
        has_evaluated: True if the script has evaluated since the last step.
    """

    def __init__(self) -> None:
        self._started = self._left_out = 0.0
        self.has_evaluated = self._is_spoilt = False

    def start(self) -> None:
        self._started, self._left_out = time.perf_counter(), 0.0
        self.has_evaluated = self._is_spoilt = False

    def evaluates(self) -> None:
        self.has_evaluated = self._is_spoilt = True

    def computes(self) -> None:
        if self._is_spoilt:
            self.start()

    def paused(self) -> AbstractContextManager[None]:
        """Leave out an evaluation."""
        self.has_evaluated = True
        return self.waiting()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Leave out the time for which the script waits for other workers."""
        since = time.perf_counter()
        try:
            yield
        finally:
            self._left_out += time.perf_counter() - since

    def read(self) -> float:
        return time.perf_counter() - self._started - self._left_out
