"""The kernel, which drives walkers. Its rules are at the head of the package.

Events are tuples in one heap, which Python compares in C. A walker blocks by yielding either an
integer, the time at which the kernel resumes it directly from the heap, or an `Awaited` object,
which keeps it among its waiters until the object makes it ready.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from heapq import heapify, heappop, heappush
from itertools import count
from types import coroutine
from typing import Any, Final, NoReturn, TypeAlias

from outpace.errors import RunError
from outpace.kernel.waiting import LAST, LATE, Awaited, Notification, TimedOut, Walker
from outpace.support.units import Time, seconds

Clock: TypeAlias = Callable[[Time | None], Time | None]
# (due, order, function, argument), or (due, order, None, walker) for a sleep. Orders differ, so
# functions are never compared.
Event: TypeAlias = tuple[Time, int, Callable[[Any], None] | None, Any]

_MANY_DEAD: Final = 100


def virtual_clock(next_event: Time | None) -> Time | None:
    """Jump to the next event."""
    return next_event


class WalkerError(RunError):
    """Raised when the named walker has raised `error`, which is chained, at time `at` (ns)."""

    def __init__(self, walker: str, at: Time, error: BaseException) -> None:
        brief = f"{type(error).__name__}: {error}".removesuffix(": ")
        super().__init__(f"{walker} failed at {seconds(at):.6f} s: {brief}")
        self.walker, self.at, self.error = walker, at, error


class DeadlockError(RunError):
    """Raised when walkers wait and no event is left."""


class _Strike(BaseException):
    """Thrown into a walker whose timeout block is over; passes through any inner blocks.

    `except Exception` in a program does not catch it.
    """


class Alarm:
    """A callback that can be cancelled; a cancelled one has no effect and does not advance time."""

    __slots__ = ("dead", "function")

    def __init__(self, function: Callable[[], None]) -> None:
        self.function, self.dead = function, False


def _ring(alarm: Alarm) -> None:
    alarm.dead = True
    alarm.function()


class _End(Exception):
    """Raised to end the loop of `Kernel.run`."""


class Kernel:
    """Drives walkers; see the head of the package.

    Args:
        clock: Returns the current time; see the head of the package.
        tie_seed: Shuffles the order of equal events, for tests.

    Attributes:
        now: Nanoseconds since the start of the run.
    """

    def __init__(self, clock: Clock = virtual_clock, *, tie_seed: int | None = None) -> None:
        self.now: Time = 0
        self._clock = clock
        self._events: list[Event] = []
        self._dead = 0  # approximate number of events that will not fall due
        self._limit: Alarm | None = None  # the limit of this call of run()
        self._ready: deque[Walker] = deque()
        # the walkers that are not done, in order of spawning
        self._walkers: dict[Walker, None] = {}
        self._foreground = 0  # number of walkers that are not daemons
        self._current: Walker | None = None
        self._ties = None if tie_seed is None else random.Random(tie_seed)
        self._orders = count(1) if self._ties is None else _shuffled_orders(self._ties)

    # -- for programs ----------------------------------------------------------

    def spawn(
        self, body: Coroutine[Any, Any, Any], name: str = "a walker", *, daemon: bool = False
    ) -> Walker:
        """Start a walker. The run ends when all walkers that are not daemons are done."""
        walker = Walker(self, body, name, daemon)
        self._walkers[walker] = None
        self._foreground += not daemon
        self._ready.append(walker)
        return walker

    @coroutine
    def sleep(self, duration_s: float) -> Generator[Time, None, None]:
        """Block for `duration_s` seconds; 0: until all ready walkers have run.

        Raises ValueError if the duration is negative or not finite.
        """
        if not 0.0 <= duration_s < math.inf:
            raise ValueError(f"nothing can sleep for {duration_s} s")
        yield self.now + math.floor(duration_s * 1e9 + 0.5)

    @coroutine
    def sleep_ns(self, duration: Time) -> Generator[Time, None, None]:
        """Block for this number of nanoseconds, which must not be negative."""
        yield self.now + duration

    @coroutine
    def wait(self) -> Generator[Notification, Any, Any]:
        """Block until `notify` is called on this walker; return the value given there."""
        return (yield Notification("a notification"))

    @contextmanager
    def timeout(self, duration_s: float, *, place: int = 0) -> Iterator[None]:
        """Raise `TimedOut` in the block if it still blocks after `duration_s` seconds.

        `place` is as for `set_alarm`. Raises ValueError if the duration is negative or not finite.
        """
        if not 0.0 <= duration_s < math.inf:
            raise ValueError(f"a timeout cannot be {duration_s} s")
        walker, strike = self._current, _Strike()
        if walker is None:
            raise RuntimeError("only a walker can have a timeout: use it in a coroutine of spawn()")
        due = self.now + math.floor(duration_s * 1e9 + 0.5)
        alarm = self.set_alarm(due, lambda: self._interrupt(walker, strike), place)
        try:
            yield
        except _Strike as caught:
            if caught is not strike:
                raise
            raise TimedOut(f"{walker.name}: {duration_s} s are over") from None
        finally:
            self.call_off(alarm)

    @property
    def nothing_due(self) -> bool:
        """True if, besides the caller, only time limits of this run are still due."""
        return not self._ready and all(
            self._is_dead(event)
            or event[2] == self._end
            or (event[2] is _ring and event[3] is self._limit)
            for event in self._events
        )

    # -- for runtimes ----------------------------------------------------------

    def call_at(
        self, time: Time, function: Callable[[Any], None], argument: Any = None, late: bool = False
    ) -> None:
        """Call `function(argument)` at `time` (ns), outside of any walker.

        late: call it after all events of that time that are not late, whenever they are created.
        """
        if time < self.now:
            raise ValueError(f"{seconds(time)} s is past: it is {seconds(self.now)} s")
        order = next(self._orders) + LATE if late else next(self._orders)
        heappush(self._events, (time, order, function, argument))

    def set_alarm(self, time: Time, function: Callable[[], None], place: int = 0) -> Alarm:
        """Call `function()` at `time` (ns) unless cancelled; `place` is added to its order.

        Raises ValueError if the time is past.
        """
        if time < self.now:
            raise ValueError(f"{seconds(time)} s is past: it is {seconds(self.now)} s")
        alarm = Alarm(function)
        heappush(self._events, (time, place + next(self._orders), _ring, alarm))
        return alarm

    def call_off(self, alarm: Alarm) -> None:
        """Cancel an alarm. Without effect if it has been cancelled or has rung."""
        if not alarm.dead:
            alarm.dead = True
            self._count_dead()

    def catch_up(self) -> None:
        """Read a real clock again, after work that took real time."""
        if self._clock is not virtual_clock:
            self.now = max(self.now, self._clock(self.now) or 0)

    def set_time(self, now: Time) -> None:
        """Set the time to `now` because the clock was set; move pending events along with it."""
        shift, self.now = now - self.now, now
        for place, event in enumerate(self._events):
            due, order, function, argument = event
            moved = self._events[place] = (due + shift, order, function, argument)
            # The kernel recognizes the event of a sleep by its identity, and the event is new here.
            if function is None and argument._blocked_on is event:
                argument._blocked_on = moved
        for walker in self._walkers:
            walker.waiting_since += shift

    def stop(self, *, if_idle: bool = False) -> None:
        """End `run` before time advances, after everything else that is due now.

        Args:
            if_idle: True: end `run` only if all walkers except daemons have ended by then.
        """
        heappush(self._events, (self.now, LAST + next(self._orders), self._end, if_idle))

    def run(self, until: Time | None = None) -> Time:
        """Drive the walkers and return the time; may be called again to continue.

        Ends when all walkers except daemons are done, after `stop`, or at `until` (ns, inclusive).
        Raises WalkerError if a walker raised, DeadlockError if walkers wait without any event.
        """

        def limit() -> None:
            if self._clock is virtual_clock and all(map(self._is_dead, self._events)):
                # The clock has jumped to the limit, but the run ended when the last walker began to
                # wait.
                since = (walker.waiting_since for walker in self._walkers)
                self.now = max(since, default=self.now)
                raise self._deadlock()
            raise _End

        if until is not None:
            self._limit = self.set_alarm(max(until, self.now), limit, LAST)
        if not self._foreground:
            self.stop(if_idle=True)
        try:
            self._run()
        except _End:
            return self.now
        finally:
            self._current = None
            if self._limit is not None:
                self.call_off(self._limit)
                self._limit = None
            # A stop that this run did not reach must not end the next run.
            self._events[:] = [event for event in self._events if event[2] != self._end]
            heapify(self._events)

    def _run(self) -> NoReturn:
        ready, events, ties = self._ready, self._events, self._ties
        virtual = self._clock is virtual_clock
        while True:
            if ready:
                if ties is not None:
                    # test_a_tie_seed_shuffles_walkers_made_ready_together
                    ready.rotate(-ties.randrange(len(ready)))
                walker = ready.popleft()
            else:
                if not virtual and not self._wait_for_clock():
                    continue  # something arrived from outside: rule 1
                if not events:
                    raise self._deadlock()
                event = heappop(events)
                due, _, function, argument = event
                if function is None:
                    walker = argument
                    if walker._blocked_on is not event:  # its sleep was interrupted
                        continue
                    walker._blocked_on = None
                elif function is _ring and argument.dead:
                    continue  # before the time is set: a cancelled alarm does not move the clock
                if virtual:
                    self.now = due
                if function is not None:
                    self._current = None
                    function(argument)
                    continue
            self._current = walker
            try:
                awaited = walker._step(walker._given)
            except StopIteration:
                self._finish(walker)
                continue
            except Exception as error:
                self._finish(walker)
                raise WalkerError(walker.name, self.now, error) from error
            walker.waiting_since = self.now
            if type(awaited) is int:
                event = walker._blocked_on = (awaited, next(self._orders), None, walker)
                heappush(events, event)
            elif isinstance(awaited, Awaited):
                awaited._waiters.append(walker)
                walker._blocked_on = awaited
            else:
                self._finish(walker)
                stray = RuntimeError(f"it awaited {awaited!r}, which is not the kernel's")
                raise WalkerError(walker.name, self.now, stray)

    def _wait_for_clock(self) -> bool:
        """Let a real clock run to the next event. True if it is due and nothing is ready."""
        due = self._events[0][0] if self._events else None
        now = self._clock(due)
        if now is None:
            raise self._deadlock()
        if now > self.now:  # test_now_never_goes_back_even_if_the_clock_does
            self.now = now
        return not self._ready and due is not None and due <= now

    def end(self, walker: Walker) -> None:
        """End a walker where it stands, as if its process were killed; do nothing if it is done.

        A message that it waited for goes to another walker. Its `finally` blocks run, and a walker
        that awaits it is resumed. The run ends if it was the last walker that is not a daemon.
        Raises RuntimeError if it is the walker that runs now.
        """
        if walker.done:
            return
        if walker is self._current:
            raise RuntimeError(f"{walker.name} cannot end itself: it returns instead")
        if not self._unblock(walker):
            self._ready.remove(walker)
        walker._coroutine.close()
        self._finish(walker)

    def close(self) -> None:
        """End every walker and run its `finally` blocks, for a run that ends early."""
        for walker in list(self._walkers):
            # An exception of a signal handler may have come while the walker was being woken.
            with suppress(ValueError):
                self._unblock(walker)  # so that a mailbox does not wake it
            walker._coroutine.close()
            walker.set(None)
        self._walkers.clear()
        self._ready.clear()
        self._events.clear()
        self._foreground = 0

    # -- inside ----------------------------------------------------------------

    def _finish(self, walker: Walker) -> None:
        del self._walkers[walker]
        walker.set(None)
        if not walker.daemon:
            self._foreground -= 1
            if not self._foreground:
                # The end comes after everything that is due now: a last message may start new work.
                self.stop(if_idle=True)

    def _end(self, if_idle: bool) -> None:
        if not (if_idle and self._foreground):
            raise _End

    def _count_dead(self) -> None:
        """Count a cancelled event; clear the heap of cancelled events when they are most of it."""
        self._dead += 1
        events = self._events
        if self._dead > _MANY_DEAD and 2 * self._dead > len(events):
            events[:] = [event for event in events if not self._is_dead(event)]
            heapify(events)
            self._dead = 0

    @staticmethod
    def _is_dead(event: Event) -> bool:
        _, _, function, argument = event
        if function is None:
            return argument._blocked_on is not event
        return function is _ring and argument.dead

    def _make_ready(self, walker: Walker) -> None:
        walker._blocked_on = None
        self._ready.append(walker)

    def _unblock(self, walker: Walker) -> bool:
        """Stop the wait of a walker; return False if it does not wait."""
        blocked_on, walker._blocked_on = walker._blocked_on, None
        if isinstance(blocked_on, tuple):  # the event of its sleep is dead now
            self._count_dead()
        elif blocked_on is not None:
            blocked_on._waiters.remove(walker)
        return blocked_on is not None

    def _interrupt(self, walker: Walker, error: BaseException) -> None:
        """Throw an exception into a walker if it is blocked."""
        if not self._unblock(walker):
            return

        def throw(_: Any) -> Any:
            walker._step = walker._coroutine.send
            return walker._coroutine.throw(error)

        walker._step = throw
        self._make_ready(walker)

    def _deadlock(self) -> DeadlockError:
        waiting = "\n".join(
            f"  {walker.name} waits for {walker._blocked_on} since "
            f"{seconds(walker.waiting_since):.6f} s"
            for walker in self._walkers
        )
        return DeadlockError(
            f"nothing can happen after {seconds(self.now):.6f} s, but these still wait:\n{waiting}"
        )


def _shuffled_orders(ties: random.Random) -> Iterator[int]:
    for made in count(1):
        yield (ties.getrandbits(30) << 64) + made
