"""Slicing: every parameter has one server, by equal parts or by whole tensors."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.blocks.slicing import Slicing, layers_within, slices_of
from outpace.experiment.running import simulate

LAYERS = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def shared(data: st.DataObject, slicing: Slicing) -> tuple[list[int], list[slice]]:
    """Layers and the slices of some number of servers that can share them."""
    layers = data.draw(LAYERS)
    most = sum(layers) if slicing is Slicing.EVEN else len(layers)
    return layers, slices_of(slicing, layers, data.draw(st.integers(1, most)))


@pytest.mark.parametrize("slicing", Slicing)
@given(data=st.data())
def test_slices_follow_each_other_through_all_parameters(slicing, data):
    layers, slices = shared(data, slicing)
    owned = [place for part in slices for place in range(part.start, part.stop)]
    assert owned == list(range(sum(layers)))
    assert all(part.start < part.stop for part in slices)


@given(data=st.data())
def test_slices_by_layers_have_whole_tensors_and_as_many(data):
    layers, slices = shared(data, Slicing.LAYERS)
    within = [layers_within(part, layers) for part in slices]
    assert [p.stop - p.start for parts in within for p in parts] == layers
    counts = [len(parts) for parts in within]
    assert max(counts) - min(counts) <= 1


def config(slicing: str, servers: int, layers: object = (10, 10, 10, 970)) -> dict[str, object]:
    return {
        "task": {"kind": "timing", "layers": layers},
        "workers": 1,
        "servers": servers,
        "slicing": slicing,
        "sync": {"kind": "bsp"},
        "compute": {"kind": "constant", "mean_s": 1.0},
        "network": {"latency_s": 0.001, "log": True},
        "stop": {"iterations": 1},
    }


@pytest.mark.parametrize(("slicing", "sizes"), [("even", [500, 500]), ("layers", [20, 980])])
def test_messages_are_as_large_as_what_their_server_owns(tmp_path, slicing, sizes):
    simulate(config(slicing, 2), tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "messages.parquet").to_pylist()
    pushes = {row["receiver"]: row["size_bytes"] for row in rows if row["kind"] == "push"}
    assert pushes == {f"server-{m}": 4 * size for m, size in enumerate(sizes)}
