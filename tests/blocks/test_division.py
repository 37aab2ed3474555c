"""New divisions of the parameters are balanced, and move as little as possible."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.blocks.division import Division, Range, divided_anew, moved, places_within, shared
from outpace.blocks.slicing import even_slices
from outpace.errors import ConfigError


def owners(division: Division) -> dict[int, int]:
    """The server of each element, one by one."""
    found: dict[int, int] = {}
    for server, part in division.parts.items():
        for piece in part:
            for element in range(piece.low, piece.high):
                assert element not in found
                found[element] = server
    return found


def least(before: dict[int, int], servers: set[int]) -> int:
    """The fewest elements that must move, over all balanced sizes."""
    had = dict.fromkeys(servers, 0)
    for server in before.values():
        if server in had:
            had[server] += 1
    size, more = divmod(len(before), len(servers))
    best = len(before)
    for larger in combinations(sorted(servers), more):
        kept = sum(min(had[server], size + (server in larger)) for server in servers)
        best = min(best, len(before) - kept)
    return best


histories = st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=6), min_size=1, max_size=5)


@given(st.integers(8, 200), st.integers(1, 6), histories)
def test_each_new_division_is_balanced_and_moves_the_fewest_elements(
    elements: int, first: int, history: list[set[int]]
) -> None:
    division = Division.of_slices(even_slices(elements, first))
    for servers in history:
        after = divided_anew(division, servers)
        assert after.problem() == ""
        before, now = owners(division), owners(after)
        assert sorted(now) == list(range(elements))
        assert set(now.values()) == servers
        sizes = [after.size(server) for server in servers]
        assert max(sizes) - min(sizes) <= 1
        changed = sum(now[element] != before[element] for element in now)
        assert changed == moved(division, after) == least(before, servers)
        assert after.number == division.number + 1
        division = after


def test_a_server_that_joins_receives_its_share_and_nothing_else_moves() -> None:
    before = Division.of_slices(even_slices(12, 3))
    after = divided_anew(before, {0, 1, 2, 3})
    assert moved(before, after) == 3  # a quarter
    assert after.parts[3] == (Range(3, 4), Range(7, 8), Range(11, 12))


def test_the_same_servers_move_nothing() -> None:
    before = Division.of_slices(even_slices(100, 3))
    assert divided_anew(before, {0, 1, 2}).parts == before.parts


def test_a_single_server_gets_one_range() -> None:
    before = divided_anew(Division.of_slices(even_slices(100, 2)), {0, 1, 2})
    assert divided_anew(before, {1}).parts == {1: (Range(0, 100),)}


@pytest.mark.parametrize("servers", [set(), set(range(6))])
def test_servers_that_would_own_nothing_are_refused(servers: set[int]) -> None:
    with pytest.raises(ConfigError, match="cannot share 5 parameters"):
        divided_anew(Division.of_slices(even_slices(5, 2)), servers)


def test_places_are_counted_in_the_block_of_a_part() -> None:
    part = (Range(10, 20), Range(40, 45))
    assert places_within(part, [Range(12, 14), Range(41, 45)]) == [slice(2, 4), slice(11, 15)]
    with pytest.raises(ValueError, match="not in the part"):
        places_within(part, [Range(19, 21)])


def test_shared_ranges_are_cut_at_the_borders_of_both() -> None:
    one, other = (Range(0, 10), Range(20, 30)), (Range(5, 22), Range(25, 40))
    assert shared(one, other) == [Range(5, 10), Range(20, 22), Range(25, 30)]


def test_a_division_with_a_gap_or_an_overlap_has_a_problem() -> None:
    assert "element 3" in Division(1, {0: (Range(0, 3),), 1: (Range(4, 6),)}).problem()
    assert "element 3" in Division(1, {0: (Range(0, 3),), 1: (Range(2, 6),)}).problem()
    assert Division(1, {0: (Range(0, 3),), 1: ()}).problem() == "a server owns nothing"
