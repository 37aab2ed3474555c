"""All-reduces through memory that the workers of a machine share."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.real.collective import killed_members
from torch.distributed import HashStore, Store

from outpace.real.collective import group as groups
from outpace.real.collective import shared_buffers, swapping
from outpace.real.collective.group import Group, GroupSettings
from outpace.real.collective.shared_buffers import SharedBuffers
from outpace.real.collective.sums_in_memory import add_share, fill_shares_of_others
from outpace.real.net.memory.segments import OwnSlot
from outpace.support.processes import forking

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="has such memory")
HOST, LIMIT_S = "127.0.0.1", 30.0
FLOAT, BF16 = torch.float32, torch.bfloat16
SIZES = [(70_001, FLOAT)]


def together(
    members: Sequence[int], work: Callable[[int, Group], Any], *, store: Any = None, **how: Any
) -> dict[int, Any]:
    """Return what each member did in one group of all of them."""
    made = GroupSettings(HashStore() if store is None else store, HOST, "gloo", **how)

    def member(me: int) -> Any:
        return work(me, Group(made, 0, members, me))

    with ThreadPoolExecutor(len(members)) as pool:
        futures = {me: pool.submit(member, me) for me in members}
        return {me: future.result(LIMIT_S) for me, future in futures.items()}


def unlike(me: int, elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Return values of very different magnitudes, whose sum depends on the order."""
    source = torch.Generator().manual_seed(me)
    values = torch.randn(elements, generator=source)
    return (values * 10.0 ** torch.randint(-6, 7, (elements,), generator=source)).to(dtype)


def in_tree(values: dict[int, torch.Tensor], low: int, high: int) -> torch.Tensor | None:
    """Halve [low, high), a power of two wide; a half without values counts for nothing."""
    if high - low == 1:
        return values.get(low)
    middle = (low + high) // 2
    left, right = in_tree(values, low, middle), in_tree(values, middle, high)
    if left is None or right is None:
        return right if left is None else left
    return left + right


@settings(deadline=None, max_examples=60)
@given(
    st.sets(st.integers(0, 9), min_size=2, max_size=6),
    st.integers(0, 150_000),
    st.sampled_from([FLOAT, torch.float64, BF16, torch.uint8]),
)
def test_each_element_is_added_once_in_the_order_of_the_workers(workers, elements, dtype):
    members = sorted(workers)
    given_by = {me: unlike(me, elements, dtype) for me in members}
    numbers = {me: torch.full((3,), float(me)) for me in members}
    buffers = [[torch.zeros_like(given_by[me]), torch.zeros(3)] for me in members]
    size = len(members)

    def fill(me: int, filled: list[slice], number: int, part: slice) -> None:
        buffers[members.index(me)][number][part] = (given_by, numbers)[number][me][part]
        filled += [part] if number == 0 else []

    filled: list[list[slice]] = [[] for _ in members]
    fills = [partial(fill, me, parts) for me, parts in zip(members, filled, strict=True)]
    for rank in range(size):
        fill_shares_of_others(buffers[rank], rank, size, fills[rank])
    is_finite = [add_share(members, rank, buffers, fills[rank]) for rank in range(size)]
    expected = in_tree(given_by, 0, 16)
    assert expected is not None
    for values, others in buffers:
        assert torch.equal(values, expected)
        assert others.tolist() == [sum(members)] * 3
    for parts in filled:  # every element is written once
        assert sum(part.stop - part.start for part in parts) == elements
    assert all(is_finite)


def test_a_sum_that_is_not_finite_is_found_by_the_member_that_adds_it_up():
    buffers = [[torch.zeros(4096)], [torch.zeros(4096)]]
    given_by = [torch.ones(4096), torch.ones(4096)]
    given_by[0][3000] = torch.inf

    def fill(me: int, number: int, part: slice) -> None:
        buffers[me][0][part] = given_by[me][part]

    fills = [partial(fill, me) for me in range(2)]
    for rank in range(2):
        fill_shares_of_others(buffers[rank], rank, 2, fills[rank])
    assert [add_share([0, 1], rank, buffers, fills[rank]) for rank in range(2)] == [True, False]


def reduced(me: int, group: Group, sizes=SIZES, notes=None) -> tuple[list[torch.Tensor], bool]:
    """Return the sums of values of all members, and whether they went through memory."""
    memory = SharedBuffers(sizes)
    is_shared = group.shares(memory, (notes if notes is not None else []).append)

    def fill(number: int, part: slice) -> None:
        buffer = memory.tensors[number]
        buffer[part] = unlike(me, len(buffer), buffer.dtype)[part]

    if is_shared:
        assert group.all_reduce_in(memory, fill)
    else:
        for number in range(len(sizes)):
            fill(number, slice(None))
        group.all_reduce(memory.tensors)
    return [buffer.clone() for buffer in memory.tensors], is_shared


@pytest.mark.parametrize("sizes", [SIZES, [(9_999, BF16), (77, FLOAT)]], ids=["one", "two"])
def test_the_sums_are_bitwise_those_that_gloo_makes_in_the_order_of_the_workers(sizes):
    def over_gloo(me: int, group: Group) -> list[torch.Tensor]:
        tensors = [unlike(me, elements, dtype) for elements, dtype in sizes]
        group.all_reduce(tensors)
        return tensors

    members = [0, 1, 4]
    expected = together(members, over_gloo, deterministic=True)
    for me, (found, is_shared) in together(members, partial(reduced, sizes=sizes)).items():
        assert is_shared
        assert all(map(torch.equal, found, expected[me]))


def test_the_buffers_are_mapped_once_and_used_again_and_again():
    def work(me: int, group: Group) -> list[float]:
        memories, found = [SharedBuffers([(5_000, FLOAT)]) for _ in range(2)], []
        for number in range(6):
            memory = memories[number % 2]
            assert group.shares(memory, print)
            (values,) = memory.tensors
            group.all_reduce_in(memory, lambda _, part: values[part].fill_(number + me))  # noqa: B023
            low, high = values.aminmax()
            assert low == high
            found.append(float(low))
        return found

    # Two workers: numbers 0, 1, ... of one and 1, 2, ... of the other.
    assert together([0, 1], work) == {me: [1.0, 3.0, 5.0, 7.0, 9.0, 11.0] for me in (0, 1)}


# -- members that cannot share ---------------------------------------------------------------


class Altered(Store):
    """A store in which the offer of worker 1 has been changed."""

    def __init__(self, change: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__()
        self._change, self._kept = change, HashStore()

    def set(self, key: str, value: Any) -> None:
        if key.endswith("memory 0 of 1"):
            value = self._change(msgspec.json.decode(value))
            value = value if isinstance(value, bytes) else msgspec.json.encode(value)
        self._kept.set(key, value)

    def get(self, key: str) -> bytes:
        return self._kept.get(key)

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        self._kept.wait(keys)

    def add(self, key: str, amount: int) -> int:
        return self._kept.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        return self._kept.check(keys)

    def delete_key(self, key: str) -> bool:
        return self._kept.delete_key(key)

    deleteKey = delete_key  # noqa: N815  # the name that torch looks for

    def set_timeout(self, timeout: Any) -> None:
        pass

    def has_extended_api(self) -> bool:
        return False


def other_token(offer: dict[str, Any]) -> dict[str, Any]:
    return offer | {"tokens": [secrets.token_hex(32) for _ in offer["tokens"]]}


def elsewhere(offer: dict[str, Any]) -> dict[str, Any]:
    return offer | {"address": f"outpace-{secrets.token_hex(16)}"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_token, "the process does not give it"),
        (elsewhere, "another container or network namespace"),
        (lambda offer: offer | {"nbytes": 4096}, "a worker offers 4096 bytes, not 280064"),
        (lambda offer: offer | {"tokens": []}, "a worker offers memory where no process has any"),
        (lambda offer: offer | {"address": "systemd"}, "memory where no process has any"),
        (lambda _: b"no JSON", "a worker offers its memory in an unknown form"),
        (lambda _: b"null", "a worker offers its memory in an unknown form"),
    ],
    ids=["no token", "elsewhere", "size", "tokens", "address", "form", "nothing"],
)
def test_no_member_shares_memory_unless_all_have_each_others(change, reason):
    notes: list[str] = []
    found = together([0, 1, 2], partial(reduced, notes=notes), store=Altered(change))
    assert [is_shared for _, is_shared in found.values()] == [False] * 3
    (note,) = notes  # of one member
    assert note.startswith("all-reduces go over the network: ")
    assert reason in note
    expected = sum(unlike(me, *SIZES[0]).double() for me in range(3))
    for (values,), _ in found.values():
        assert torch.allclose(values.double(), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "change",
    [lambda offer: offer | {"boot": "another"}, lambda offer: {"boot": offer["boot"]}],
    ids=["another machine", "a system without such memory"],
)
def test_where_no_memory_can_be_expected_there_is_no_notice(change):
    notes: list[str] = []
    found = together([0, 1, 2], partial(reduced, notes=notes), store=Altered(change))
    assert [is_shared for _, is_shared in found.values()] == [False] * 3
    assert not notes


def test_memory_that_others_cannot_write_to_is_not_taken(monkeypatch):
    monkeypatch.setattr(
        shared_buffers,
        "OwnSlot",
        lambda number, nbytes, is_read: OwnSlot(number, nbytes, is_read=True),
    )
    notes: list[str] = []
    found = together([0, 1], partial(reduced, notes=notes))
    assert [is_shared for _, is_shared in found.values()] == [False] * 2
    assert notes == [
        "all-reduces go over the network: a worker offers memory that only it can write to"
    ]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (shared_buffers, "why_no_memory"),
        (shared_buffers, "why_no_files"),
        (swapping, "why_no_files"),
    ],
)
def test_where_memory_or_descriptors_are_short_the_group_uses_gloo(monkeypatch, where, name):
    monkeypatch.setattr(where, name, lambda *_: "there is no more")

    def use() -> int:
        notes: list[str] = []
        found = together([0, 1], partial(reduced, notes=notes))
        assert [is_shared for _, is_shared in found.values()] == [False] * 2
        assert notes == ["all-reduces go over the network: there is no more"]
        gc.collect()
        return descriptors()

    found = [use() for _ in range(5)]
    assert found[-1] < found[0] + 4  # else each of the last four groups left one


def test_a_group_that_shares_no_memory_does_not_try_again(monkeypatch):
    tried: list[int] = []

    def refuses(*arguments: Any) -> Any:
        tried.append(1)
        raise swapping.NotShared("it cannot")

    monkeypatch.setattr(groups, "swapped", refuses)

    def work(me: int, group: Group) -> list[str]:
        notes: list[str] = []
        assert not any(group.shares(SharedBuffers(SIZES), notes.append) for _ in range(3))
        return notes

    notes = together([0, 1], work)
    assert list(notes.values()) == [["all-reduces go over the network: it cannot"]] * 2
    assert len(tried) == 2  # one of each member


# -- what is left behind -----------------------------------------------------------------------


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mapped() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:outpace")


def test_neither_descriptors_nor_memory_grow_with_groups():
    def use() -> tuple[int, int]:
        found = together([0, 1], reduced)
        assert all(is_shared for _, is_shared in found.values())
        gc.collect()
        return descriptors(), mapped()

    first = use()
    for _ in range(12):
        last = use()
    assert last[0] < first[0] + 12  # else each of the twelve groups left one
    assert last[1] <= first[1]


def everything(end: Connection) -> list[Any]:
    """Return what a process says until it ends."""
    heard = []
    with end, contextlib.suppress(EOFError):
        while end.poll(LIMIT_S):
            heard.append(end.recv())
        pytest.fail("it takes for ever")
    return heard


@pytest.mark.slow
@pytest.mark.parametrize("at", ["meeting 0", "adding", "meeting 1"])
def test_the_all_reduce_of_the_others_fails_when_a_member_is_killed(tmp_path, at):
    ends, processes = [], []
    for me in range(3):
        mine, theirs = Pipe(duplex=False)
        how = at if me == 1 else ""
        processes.append(
            forking.start(f"member-{me}", killed_members.take_part, str(tmp_path), me, how, theirs)
        )
        theirs.close()
        ends.append(mine)
    said = [everything(mine) for mine in ends]
    for process in processes:
        process.join(LIMIT_S)
    assert said == [[[3.0], "RuntimeError"], [[3.0]], [[3.0], "RuntimeError"]]
    assert [process.exitcode for process in processes] == [0, -signal.SIGKILL, 0]
