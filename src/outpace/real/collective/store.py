"""The store through which the members of a group find each other, with torch's interface.

Each request is a message to the coordinator, over an authenticated connection (`hosted_store`
answers it there). A group is formed in parallel with the training, whose thread may be computing.
So the thread that asks also waits for the answer.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from torch.distributed import Store  # type: ignore[attr-defined]

from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Refused
from outpace.real.net.peer_messages import AskStore, StoreAnswer, StoreOperation
from outpace.real.net.transport import Caller, Handlers, Transport
from outpace.real.zeromq.transport import ZeroMQTransport
from outpace.support.units import nanoseconds
from outpace.sync.messages import WireMessage

if TYPE_CHECKING:
    from outpace.real.node.member import CoordinatorLink

_NAME: Final = "the store of the groups"
_CLOSED: Final = "the connection to the store is closed"
_LOOK_S: Final = 0.05  # seconds between two checks whether the connection is closed here
_FIRST_PAUSE_S: Final = 0.001  # seconds before a missing key is asked for again
_LONGEST_PAUSE_S: Final = 0.1


class StoreConnection:
    """A worker's connection to the store of its run, made when it is first needed.

    Any thread may use it; only one thread at a time sends a request and waits for the answer.

    link: link of the worker.
    """

    def __init__(self, link: CoordinatorLink) -> None:
        self._link = link
        self._clock = RealClock()
        self._transport: Transport | None = None
        self._caller: Caller | None = None
        self._numbers = itertools.count()
        self._answer: StoreAnswer | None = None  # number of the last request
        self._lock = threading.Lock()
        self._over = ""  # reason why no more requests are answered
        self._closing = False

    def ask(
        self,
        limit_s: float,
        operation: StoreOperation,
        keys: Sequence[str],
        value: bytes = b"",
        amount: int = 0,
    ) -> StoreAnswer | None:
        """Return the answer to a request; None if it does not arrive in time.

        The end of a connection ends its requests at once. If there was no connection yet, it is
        tried repeatedly, and requests wait until their limit or `close`.

        Raises:
            RuntimeError: if the connection cannot be made, or has ended.
        """
        with self._lock:
            request = AskStore(next(self._numbers), operation, list(keys), value, amount)
            try:
                return self._answer_to(request, limit_s)
            except Exception as error:
                self._over = str(error)
                raise RuntimeError(self._over) from None

    def _answer_to(self, request: AskStore, limit_s: float) -> StoreAnswer | None:
        if self._over:
            raise RuntimeError(self._over)
        if self._caller is None:
            link, handlers = self._link, Handlers(lambda *_: None, self._take, self._lost)
            self._transport = ZeroMQTransport(link.name, link.session, self._clock, lambda _: None)
            self._caller = self._transport.call(_NAME, link.store, link.key, handlers)
        until, look = self._clock.now + nanoseconds(limit_s), nanoseconds(_LOOK_S)
        self._caller.send(request)
        while not self._closing:
            if (answer := self._answer) is not None and answer.number == request.number:
                return answer
            if (now := self._clock.now) >= until:
                return None
            self._clock(min(now + look, until))
        raise RuntimeError(_CLOSED)

    def close(self) -> None:
        """End the connection, if there is one; waiting requests raise RuntimeError."""
        self._closing = True
        with self._lock:
            self._over = self._over or _CLOSED
            if self._caller is not None:
                self._caller.close(linger_s=0)
            if self._transport is not None:
                self._transport.close()
            self._caller = self._transport = None

    def _take(self, _: str, message: WireMessage) -> None:
        if isinstance(message, Refused):
            raise RuntimeError(
                f"the store of the groups refused {self._link.name}: {message.reason}"
            )
        assert isinstance(message, StoreAnswer)
        self._answer = message

    def _lost(self, _: str) -> None:
        raise RuntimeError(f"{self._link.name} lost the store of the groups")


class GroupStore(Store):
    """A torch.distributed store. Keep a reference to it: torch does not keep its Python part.

    It has the methods of `torch.distributed.Store`, which raise RuntimeError if there is no answer
    in time, or the connection has ended.

    Args:
        limit_s: longest time for which a request waits; torch may ask for less.
    """

    def __init__(self, connection: StoreConnection, limit_s: float) -> None:
        super().__init__()
        self._connection, self._limit_s = connection, limit_s

    def set_timeout(self, timeout: timedelta) -> None:
        self._limit_s = timeout.total_seconds()

    def set(self, key: str, value: bytes | str) -> None:
        self._ask("set", [key], value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        return self._once_there([key]).value

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until these keys have values."""
        self._once_there(keys, timeout)

    def add(self, key: str, amount: int) -> int:
        return self._ask("add", [key], amount=amount).amount

    def check(self, keys: list[str]) -> bool:
        return self._ask("get", keys).amount == len(keys)

    def delete_key(self, key: str) -> bool:
        return self._ask("delete", [key]).amount == 1

    deleteKey = delete_key  # noqa: N815  # the name that torch looks for

    def clone(self) -> Store:
        return self  # any thread may use it

    def _once_there(self, keys: list[str], timeout: timedelta | None = None) -> StoreAnswer:
        """Return the answer to `get` once all keys have values."""
        limit_s = self._limit_s if timeout is None else timeout.total_seconds()
        limit_s = min(limit_s, self._limit_s)
        until, pause_s = time.monotonic() + limit_s, _FIRST_PAUSE_S
        while (answer := self._ask("get", keys)).amount < len(keys):
            if (rest_s := until - time.monotonic()) <= 0:
                raise _nothing_at(keys, limit_s)
            time.sleep(min(pause_s, rest_s))
            pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
        return answer

    def _ask(
        self, operation: StoreOperation, keys: list[str], value: bytes = b"", amount: int = 0
    ) -> StoreAnswer:
        answer = self._connection.ask(self._limit_s, operation, keys, value, amount)
        if answer is None:
            raise _nothing_at(keys, self._limit_s)
        return answer


def _nothing_at(keys: Sequence[str], limit_s: float) -> RuntimeError:
    names = ", ".join(keys[:3])
    return RuntimeError(f"the other workers did not come within {limit_s:g} s: nothing at {names}")
