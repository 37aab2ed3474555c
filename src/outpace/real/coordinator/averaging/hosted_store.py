"""The store of a run: keys and values through which its workers form process groups.

The rendezvous of torch.distributed, over the authenticated connections of the run instead of a
TCPStore, which any process that reaches its port may read, overwrite, and fill. What a worker may
store is bounded. Each request is answered at once: a worker that waits for a key asks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from outpace.blocks.block import Block
from outpace.real.net.peer_messages import AskStore, StoreAnswer
from outpace.real.net.transport import Handlers, Listener, Transport
from outpace.sync.messages import WireMessage

MOST_KEYS: Final = 16_384  # of each worker
MOST_BYTES: Final = 16 << 20  # of each worker's keys and values
_MOST_SUM: Final = 1 << 62
_VALUES: Final = {"set": 1, "compare": 2}  # in a request; of all others none


@dataclass(frozen=True, slots=True)
class _Entry:
    owner: str  # the worker that wrote it last
    value: bytes


class KeyValues:
    """The content of the store. A request that is not acceptable changes nothing."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._keys: Counter[str] = Counter()  # number of keys, by owner
        self._bytes: Counter[str] = Counter()

    def answer(self, name: str, ask: WireMessage) -> StoreAnswer | str:
        """Return the answer to a message of a worker, or why it is not acceptable."""
        if not isinstance(ask, AskStore):
            return f"{type(ask).__name__} is not for the store"
        operation = ask.operation
        if operation == "count":
            return StoreAnswer(ask.number, amount=len(self._entries))
        found = [self._entries[key].value for key in ask.keys if key in self._entries]
        known = found[0] if found else b""
        if operation == "get":
            return StoreAnswer(ask.number, known, len(found))
        values = _VALUES.get(operation, 0)
        if len(ask.keys) != 1 or len(ask.values) != values:
            return f"a request to {operation} has one key and {values} values"
        if operation == "delete":
            self._remove(ask.keys[0])
            return StoreAnswer(ask.number, amount=len(found))
        if operation == "add":
            return self._add(name, ask, known if found else b"0")
        value = ask.values[-1]
        if operation == "compare":
            if known != ask.values[0]:
                return StoreAnswer(ask.number, known if found else ask.values[0])
            return self._write(name, ask.keys[0], value, StoreAnswer(ask.number, value))
        return self._write(name, ask.keys[0], value, StoreAnswer(ask.number))

    def _add(self, name: str, ask: AskStore, known: bytes) -> StoreAnswer | str:
        try:
            total = int(known) + ask.amount
        except ValueError:
            return "it adds to a value that is not a number"
        if abs(total) > _MOST_SUM:
            return "a sum in the store is too large"
        answer = StoreAnswer(ask.number, amount=total)
        return self._write(name, ask.keys[0], str(total).encode(), answer)

    def _write(self, name: str, key: str, value: bytes, answer: StoreAnswer) -> StoreAnswer | str:
        known = self._entries.get(key)
        own = known if known is not None and known.owner == name else None
        keys = self._keys[name] + (own is None)
        size = self._bytes[name] + _size(key, value) - (_size(key, own.value) if own else 0)
        if keys > MOST_KEYS or size > MOST_BYTES:
            return f"it stores more than {MOST_KEYS} keys or {MOST_BYTES} bytes"
        self._remove(key)
        self._entries[key] = _Entry(name, value)
        self._keys[name], self._bytes[name] = keys, size
        return answer

    def _remove(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._keys[entry.owner] -= 1
            self._bytes[entry.owner] -= _size(key, entry.value)


class HostedStore:
    """Answers the requests of all workers to the store.

    Args:
        transport: listens at `address`.
        keys: public keys of the processes; empty in an insecure run.

    Raises:
        ConfigError: it cannot listen there.
    """

    def __init__(
        self, transport: Transport, address: str, workers: Sequence[str], keys: Mapping[str, str]
    ) -> None:
        self._values = KeyValues()
        self._listener: Listener = transport.listen(
            address,
            {name: keys.get(name, "") for name in workers},
            # The keys of a worker that is gone stay: others may need them.
            Handlers(lambda name, message: None, self._take, lambda name: None),
        )
        self.endpoint = self._listener.endpoint

    def _take(self, name: str, message: WireMessage, _: Block | None) -> None:
        answer = self._values.answer(name, message)
        if isinstance(answer, str):
            self._listener.refuse(name, answer)
        else:
            self._listener.send(name, answer)

    def close(self) -> None:
        self._listener.close()


def _size(key: str, value: bytes) -> int:
    return len(key.encode()) + len(value)
