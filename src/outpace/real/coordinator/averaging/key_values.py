"""Keys and values through which the workers of a run without servers form groups.

The rendezvous of torch.distributed, over the authenticated connections of the run instead of a
TCPStore, which any process that reaches its port may read, overwrite, and fill. What a worker may
store is bounded, and so is the number of its requests that wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from outpace.blocks.block import Block
from outpace.real.net.peer_messages import AskStore, StoreAnswer
from outpace.sync.messages import WireMessage

MOST_KEYS: Final = 16_384  # of each worker
MOST_BYTES: Final = 16 << 20  # of each worker's keys and values
MOST_WAITING: Final = 4_096  # requests of each worker
_MOST_SUM: Final = 1 << 62

_Request: TypeAlias = tuple[str, int]  # name of the worker, number


@dataclass(frozen=True, slots=True)
class _Entry:
    owner: str  # the worker that wrote it last
    value: bytes


class KeyValues:
    """The store of a run. A request that is not acceptable changes nothing.

    Args:
        send: sends a message to a worker.
        refuse: called with the name of a worker that sent such a request, and the reason.
    """

    def __init__(
        self, send: Callable[[str, WireMessage], None], refuse: Callable[[str, str], None]
    ) -> None:
        self._send, self._refuse = send, refuse
        self._entries: dict[str, _Entry] = {}
        self._keys: Counter[str] = Counter()  # number of keys, by owner
        self._bytes: Counter[str] = Counter()
        self._waiting: dict[_Request, AskStore] = {}
        self._waiting_for: dict[str, dict[_Request, None]] = {}  # by one of the missing keys
        self._waits: Counter[str] = Counter()  # number of requests that wait, by worker

    def take(self, name: str, message: WireMessage, _: Block | None) -> None:
        """Handle a message of a worker."""
        objection = (
            self._carry_out(name, message)
            if isinstance(message, AskStore)
            else f"{type(message).__name__} is not for the store"
        )
        if objection:
            self._refuse(name, objection)

    def lose(self, name: str) -> None:
        """Forget the requests of a worker that is gone. Its keys stay: others may need them."""
        for request in [request for request in self._waiting if request[0] == name]:
            self._forget(request)

    def _carry_out(self, name: str, ask: AskStore) -> str:
        """Return why the request is not acceptable; empty if it was carried out."""
        operation, number = ask.operation, ask.number
        if operation in ("get", "wait"):
            return self._wait(name, ask)
        if operation == "forget":
            self._forget((name, number))
            return ""
        if operation == "count":
            self._send(name, StoreAnswer(number, amount=len(self._entries)))
            return ""
        if operation == "check":
            present = sum(key in self._entries for key in ask.keys)
            self._send(name, StoreAnswer(number, amount=present))
            return ""
        values = {"set": 1, "compare": 2}.get(operation, 0)
        if len(ask.keys) != 1 or len(ask.values) != values:
            return f"a request to {operation} has one key and {values} values"
        key = ask.keys[0]
        known = self._entries.get(key)
        if operation == "delete":
            self._remove(key)
            self._send(name, StoreAnswer(number, amount=int(known is not None)))
            return ""
        if operation == "add":
            return self._add(name, ask, b"0" if known is None else known.value)
        if operation == "compare":
            return self._compare(name, ask, b"" if known is None else known.value)
        return self._write(name, key, ask.values[0], StoreAnswer(number))

    def _add(self, name: str, ask: AskStore, known: bytes) -> str:
        try:
            total = int(known) + ask.amount
        except ValueError:
            return "it adds to a value that is not a number"
        if abs(total) > _MOST_SUM:
            return "a sum in the store is too large"
        answer = StoreAnswer(ask.number, amount=total)
        return self._write(name, ask.keys[0], str(total).encode(), answer)

    def _compare(self, name: str, ask: AskStore, known: bytes) -> str:
        expected, desired = ask.values
        if known == expected:
            return self._write(name, ask.keys[0], desired, StoreAnswer(ask.number, desired))
        missing = ask.keys[0] not in self._entries
        self._send(name, StoreAnswer(ask.number, expected if missing else known))
        return ""

    def _write(self, name: str, key: str, value: bytes, answer: StoreAnswer) -> str:
        known = self._entries.get(key)
        own = known if known is not None and known.owner == name else None
        keys = self._keys[name] + (own is None)
        size = self._bytes[name] + _size(key, value) - (_size(key, own.value) if own else 0)
        if keys > MOST_KEYS or size > MOST_BYTES:
            return f"it stores more than {MOST_KEYS} keys or {MOST_BYTES} bytes"
        self._remove(key)
        self._entries[key] = _Entry(name, value)
        self._keys[name], self._bytes[name] = keys, size
        self._send(name, answer)
        for request in self._waiting_for.pop(key, {}):
            self._answer_or_wait(request)
        return ""

    def _remove(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._keys[entry.owner] -= 1
            self._bytes[entry.owner] -= _size(key, entry.value)

    def _wait(self, name: str, ask: AskStore) -> str:
        request = name, ask.number
        if ask.operation == "get" and len(ask.keys) != 1:
            return "a request to get has one key"
        if request in self._waiting or self._waits[name] >= MOST_WAITING:
            return f"more than {MOST_WAITING} of its requests wait, or one was sent twice"
        self._waiting[request] = ask
        self._waits[name] += 1
        self._answer_or_wait(request)
        return ""

    def _answer_or_wait(self, request: _Request) -> None:
        ask = self._waiting[request]
        missing = next((key for key in ask.keys if key not in self._entries), None)
        if missing is not None:
            self._waiting_for.setdefault(missing, {})[request] = None
            return
        self._forget(request)
        value = self._entries[ask.keys[0]].value if ask.operation == "get" else b""
        self._send(request[0], StoreAnswer(ask.number, value))

    def _forget(self, request: _Request) -> None:
        ask = self._waiting.pop(request, None)
        if ask is None:
            return
        self._waits[request[0]] -= 1
        for key in ask.keys:
            requests = self._waiting_for.get(key, {})
            requests.pop(request, None)
            if not requests:
                self._waiting_for.pop(key, None)


def _size(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value)
