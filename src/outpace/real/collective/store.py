"""The store through which the members of a group find each other, as torch.distributed wants it.

Each request is a message to the coordinator, over an authenticated connection (`key_values` answers
it there). The connection has a thread of its own: a group is formed beside the training, whose
thread may be computing.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias

from torch.distributed import Store  # type: ignore[attr-defined]

from outpace.blocks.block import Block
from outpace.real.collective.communication_thread import Waker
from outpace.real.net.clock import RealClock
from outpace.real.net.messages import Refused
from outpace.real.net.peer_messages import AskStore, StoreAnswer, StoreOperation
from outpace.real.net.transport import Caller, Handlers, Session
from outpace.real.net.zeromq.transport import ZeroMQTransport
from outpace.sync.messages import WireMessage

_NAME: Final = "the store of the groups"
_ENDS_S: Final = 2.0

_Answer: TypeAlias = "Future[StoreAnswer]"


class StoreConnection:
    """A worker's connection to the store of its run, made when it is first needed.

    Any thread may use it.

    Args:
        name: of the worker.
        key: public key of the store; empty in an insecure run.
    """

    def __init__(self, name: str, session: Session, key: str) -> None:
        self._name, self._session, self._key = name, session, key
        self._clock: RealClock
        self._waker: Waker
        self._numbers = itertools.count()
        self._answers: dict[int, _Answer] = {}
        self._caller: Caller | None = None
        self._lock = threading.Lock()  # of `_over`, and of calls to the waker before it is set
        self._over = ""  # why no more requests are answered
        self._closing = False
        self._thread: threading.Thread | None = None  # None: there is no connection

    def at(self, endpoint: str) -> StoreConnection:
        """Return this, connected. endpoint: of the store, the same in each call."""
        if self._thread is None:
            self._clock = RealClock()
            self._waker = Waker(self._clock)
            serve = partial(self._serve, endpoint)
            self._thread = threading.Thread(target=serve, name="store", daemon=True)
            self._thread.start()
        return self

    def ask(self, timeout_s: float, make: Callable[[int], AskStore]) -> StoreAnswer:
        """Return the answer to a request. make: returns the request with this number.

        The end of a connection ends its requests at once. A connection that was never there is
        tried again and again, and its requests wait until their limit or `close`.

        Raises:
            RuntimeError: the store does not answer in time, or the connection has ended.
        """
        answer: _Answer = Future()
        request = make(next(self._numbers))
        self._call(partial(self._send, request, answer))
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            self._call(partial(self._forget, request.number))
            keys = ", ".join(request.keys[:3])
            raise RuntimeError(
                f"the other workers did not come within {timeout_s:g} s: nothing at {keys}"
            ) from None

    def close(self) -> None:
        """End the connection, if there is one; requests that wait raise RuntimeError."""
        if self._thread is None:
            return
        with self._lock:
            if not self._over:
                self._waker.call(self._close)
        self._thread.join(_ENDS_S)

    def _call(self, action: Callable[[], None]) -> None:
        with self._lock:
            if self._over:
                raise RuntimeError(self._over)
            self._waker.call(action)

    # -- in the thread of the connection ------------------------------------------------

    def _serve(self, endpoint: str) -> None:
        over = "the connection to the store is closed"
        transport = ZeroMQTransport(self._name, self._session, self._clock, lambda _: None)
        handlers = Handlers(lambda *_: None, self._take, self._lost)
        try:
            self._caller = transport.call(_NAME, endpoint, self._key, handlers)
            while not self._closing:
                self._clock(None)
        except Exception as error:  # reported by each request
            over = str(error)
        with self._lock:
            self._over = over
        self._waker.stop()
        for action in self._waker.left:
            if isinstance(action, partial) and action.func == self._send:
                request, answer = action.args
                self._answers[request.number] = answer
        for answer in self._answers.values():
            answer.set_exception(RuntimeError(over))
        self._waker.close()
        if self._caller is not None:
            self._caller.close(linger_s=0)
        transport.close()

    def _send(self, request: AskStore, answer: _Answer) -> None:
        assert self._caller is not None
        self._answers[request.number] = answer
        self._caller.send(request)

    def _forget(self, number: int) -> None:
        if self._answers.pop(number, None) is not None and self._caller is not None:
            self._caller.send(AskStore(number, "forget"))

    def _close(self) -> None:
        self._closing = True

    def _take(self, _: str, message: WireMessage, __: Block | None) -> None:
        if isinstance(message, Refused):
            raise RuntimeError(f"the store of the groups refused {self._name}: {message.reason}")
        assert isinstance(message, StoreAnswer)
        answer = self._answers.pop(message.number, None)
        if answer is not None:
            answer.set_result(message)

    def _lost(self, _: str) -> None:
        raise RuntimeError(f"{self._name} lost the store of the groups")


class GroupStore(Store):
    """A torch.distributed store. Keep a reference to it: torch keeps none to its Python part.

    Its methods are those of `torch.distributed.Store`, and raise RuntimeError like `ask`.

    Args:
        limit_s: longest time for which a request waits; torch may ask for less.
    """

    def __init__(self, connection: StoreConnection, limit_s: float) -> None:
        super().__init__()
        self._connection, self._limit_s = connection, limit_s

    def set_timeout(self, timeout: timedelta) -> None:
        self._limit_s = timeout.total_seconds()

    def set(self, key: str, value: bytes | str) -> None:
        self._ask("set", [key], [_as_bytes(value)])

    def get(self, key: str) -> bytes:
        return self._ask("get", [key]).value

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until these keys have values."""
        self._ask("wait", keys, timeout=timeout)

    def add(self, key: str, amount: int) -> int:
        return self._ask("add", [key], amount=amount).amount

    def compare_set(self, key: str, expected: bytes | str, desired: bytes | str) -> bytes:
        return self._ask("compare", [key], [_as_bytes(expected), _as_bytes(desired)]).value

    def check(self, keys: list[str]) -> bool:
        return self._ask("check", keys).amount == len(keys)

    def delete_key(self, key: str) -> bool:
        return self._ask("delete", [key]).amount == 1

    def num_keys(self) -> int:
        return self._ask("count", []).amount

    deleteKey, getNumKeys = delete_key, num_keys  # noqa: N815  # the names that torch looks for

    def clone(self) -> Store:
        return self  # any thread may use it

    def _ask(
        self,
        operation: StoreOperation,
        keys: list[str],
        values: list[bytes] | None = None,
        amount: int = 0,
        timeout: timedelta | None = None,
    ) -> StoreAnswer:
        limit_s = self._limit_s if timeout is None else timeout.total_seconds()
        limit_s = min(limit_s, self._limit_s)
        return self._connection.ask(
            limit_s, lambda number: AskStore(number, operation, keys, values or [], amount)
        )


def _as_bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
