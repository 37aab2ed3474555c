"""The real speed-up of the recommended strategy, compared with the promise of the advice."""

import math

import pytest

import outpace
from outpace.experiment.calibrating import calibrate, write_calibration

# Each step is stretched to a duration that depends on the seed; the computation takes far less.
LAW = {"kind": "lognormal", "mean_s": 0.05, "cv": 0.1, "factors": [1.0, 1.0, 1.0, 3.0]}
CONFIG = {
    "task": {"kind": "quadratic", "eigenvalues": [1.0, 0.3], "noise": 0.02},
    "workers": 4,
    "sync": {"kind": "bsp"},
    "optimizer": {"lr": 0.2},
    "compute": LAW,
}
SEEDS = (11, 12, 13)


@pytest.mark.slow
def test_the_real_speedup_over_bsp_lies_in_the_promised_interval(tmp_path):
    """Calibrate from a real run of BSP, take the advice, and run both strategies for real.

    The real speed-up is the geometric mean over three seeds. The test fails if the calibration is
    wrong about the slow worker: without `factors` in the cluster file BSP is recommended, and with
    a factor that is a third too small, 1.40 to 2.14 were promised and it was 2.79.
    """
    outpace.run(CONFIG, tmp_path / "first", stop={"iterations": 30})
    cluster = tmp_path / "cluster.yaml"
    write_calibration(calibrate([tmp_path / "first"]), cluster)
    advice = outpace.advise(
        CONFIG,
        stop={"virtual_time_s": 10.0},
        target_loss=0.01,
        seeds=4,
        only=["drop-stragglers"],
        cluster=cluster,
    )
    assert advice.strategy == "drop-stragglers"
    promised = advice.data["one_run"]["speedup_over_bsp"]
    assert promised["low"] > 1

    def real_s(sync, seed):
        data = {**advice.recommendation, "sync": sync, "compute": LAW, "seed": seed}
        ran = outpace.run(data, stop={"iterations": 20})
        return ran.summary["time_to_target_s"]

    gains = [
        real_s({"kind": "bsp"}, seed) / real_s(advice.recommendation["sync"], seed)
        for seed in SEEDS
    ]
    real = math.exp(math.fsum(map(math.log, gains)) / len(gains))
    assert promised["low"] <= real <= promised["high"], (gains, promised)
