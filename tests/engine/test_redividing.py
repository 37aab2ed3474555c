"""Scripts continue with another number of workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from outpace.engine.resuming import kept_in
from outpace.engine.scripts.redividing import Redivided, _places, redivided
from outpace.record.checkpoints.trees import write_tree


def test_the_samples_that_were_used_are_shared_out_anew():
    # Four workers have had 30 samples each of epoch 2: 120 of it are used.
    known = [[(2, 30)]] * 4
    assert _places(known, 4, 6) == [(2, 20)]
    assert _places(known, 4, 3) == [(2, 40)]
    assert _places(known, 4, 7) == [(2, 17)]  # 119: one sample is used twice


def test_the_worker_that_is_furthest_behind_counts():
    # Each has two samplers.
    assert _places([[(1, 0), (0, 8)], [(0, 90), (0, 4)]], 2, 1) == [(0, 180), (0, 8)]


def test_a_further_worker_draws_random_numbers_of_its_own():
    state = {"objects": {"seen": 3}, "random": {"torch": 1}, "data": [(0, 4)]}
    others = Redivided(2, [(0, 2)])
    assert others.of(1, state) == {**state, "data": [(0, 2)]}
    assert others.of(2, state) == {"objects": {"seen": 3}, "data": [(0, 2)]}


def test_places_are_found_beside_the_model_of_a_worker_without_servers(tmp_path):
    model = torch.zeros(3)
    trees = [
        {"kept": {"objects": {"seen": model}, "data": [(1, 12)]}, "model": model},
        {"kept": {"objects": {"seen": model}, "data": [(1, 8)]}, "model": model},
    ]
    parts = [write_tree(tmp_path / kept_in(n), tree) for n, tree in enumerate(trees)]
    index = SimpleNamespace(workers=2, parts=parts)
    point: Any = SimpleNamespace(
        checkpoint=SimpleNamespace(index=index), first=[4] * 4, path=tmp_path
    )
    # The worker that is behind has read 8 of its samples: 16 are used, 4 for each of four.
    assert redivided(point) == Redivided(2, [(1, 4)])
    assert [Redivided(2, []).source(worker) for worker in range(4)] == [0, 1, 0, 1]
