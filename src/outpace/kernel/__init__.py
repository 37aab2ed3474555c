"""One kernel for any clock: it resumes coroutines one at a time, in a fixed order.

A *walker* is a coroutine that the kernel drives. It runs until it blocks (`sleep`, `wait`,
`Mailbox.get` and `get_several`, awaiting a `Future` or a `Walker`), and nothing else runs
meanwhile. It is resumed when it is made *ready* or when the *event* that ends its sleep falls due.
Every runtime relies on these rules:

1. All ready walkers run before time advances, in the order in which they were made ready.
2. Events fall due in the order of (time, creation); at equal times, events marked late, such as the
   end of `Mailbox.get_within`, come after all others. `tie_seed` shuffles ready walkers and events
   of equal time, so that tests find code that depends on their order. The kind of an event
   (`call_at`, `set_alarm`, a sleep) does not matter for its place.
3. A walker that was given a value receives it, whatever else happens at the same time: a timeout
   interrupts only a blocked walker, and only when no walker is ready. So no message is lost.
4. An exception that leaves a walker ends the run (`WalkerError`). When no event is left and
   walkers still wait, the run ends with `DeadlockError`.

The *clock* is a function: given the time of the next event (None: there is none) it returns the
current time, or None when nothing can happen any more. The virtual clock jumps; a real clock waits,
and may return early when a message arrives from outside.
"""

from outpace.kernel.kernel import Alarm, Clock, DeadlockError, Kernel, WalkerError, virtual_clock
from outpace.kernel.waiting import Future, Mailbox, TimedOut, Walker

__all__ = [
    "Alarm",
    "Clock",
    "DeadlockError",
    "Future",
    "Kernel",
    "Mailbox",
    "TimedOut",
    "Walker",
    "WalkerError",
    "virtual_clock",
]
