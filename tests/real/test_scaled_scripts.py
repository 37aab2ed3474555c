"""Workers and servers of a script's run join and leave while the training goes on."""

from __future__ import annotations

from collections import Counter

from safetensors.torch import load_file
from tests.real.test_moving_servers import divided
from tests.real.test_scaled_workers import scaled
from tests.real.test_scaled_workers_and_servers import changing, stop
from tests.support.script_runs import script_run

from outpace import run

SAMPLES, BATCH = 24, 2
BSP = script_run("elastic.py", mean_s=0.02)


def test_a_script_has_more_workers_and_servers_and_then_fewer(tmp_path, capfd):
    folder = tmp_path / "run"
    steps = [{"workers": 3, "servers": 3}, {"workers": 1, "servers": 1}]
    result = run(BSP, folder, control=changing(folder, *steps, at_end=stop, more=30))
    summary = result.summary
    assert (summary["status"], summary["restarts"], summary["updates_lost"]) == ("complete", 0, 0)
    assert [each["servers"] for each in divided(folder)] == [3, 1]
    up, down = scaled(folder)
    assert [up["workers"], down["workers"]] == [3, 1]
    joined, left = up["first"], down["first"]
    assert summary["iterations"][1:] == [left, left - joined]
    # Each (worker, iteration) is logged once, with the number of workers and its own count.
    rows = [row for row in result.metrics.to_pylist() if row["done"] is not None]
    assert max(Counter((row["worker"], row["iteration"]) for row in rows).values()) == 1
    for row in rows:
        assert row["done"] == row["iteration"]  # also of the worker that has joined
        n = 2 if row["iteration"] <= joined else 3 if row["iteration"] < left else 1
        assert row["workers"] == n or row["worker"] >= n
    # All are in the same epoch.
    epochs = {row["iteration"]: int(row["epoch"]) for row in rows if row["worker"] == 0}
    assert all(row["epoch"] == epochs[row["iteration"]] for row in rows)
    entries = -load_file(folder / "model.safetensors")["entries"]
    seen: Counter[str] = Counter()
    for epoch in range(max(epochs.values())):  # the last one is not complete
        iterations = [n for n, each in epochs.items() if each == epoch]
        first, last = min(iterations), max(iterations)
        used = entries[epoch]
        for n, begin, end in ((2, 0, joined - 1), (3, joined + 1, left - 1), (1, left, 10**9)):
            if begin <= first and last <= end:  # the epoch was divided among n workers
                assert used.mul(n).sub(1).abs().max() < 1e-6
                assert len(iterations) == SAMPLES // (n * BATCH)
                seen[f"epochs of {n}"] += 1
        seen["gradients"] += sum(2 if n < joined else 3 if n < left else 1 for n in iterations)
    assert min(seen["epochs of 2"], seen["epochs of 3"], seen["epochs of 1"]) > 0
    assert 0 <= summary["gradients_applied"] - seen["gradients"] <= SAMPLES // BATCH + 1
    text = "was told to leave the run; the script of worker-2 ends here"
    assert text in capfd.readouterr().err
