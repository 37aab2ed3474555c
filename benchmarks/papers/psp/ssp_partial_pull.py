"""PSP-SGD, section 5: SSP with partial pull. See ssp-partial-pull.yaml."""

from __future__ import annotations

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curves, Experiments
from benchmarks.papers.over_seeds import all_of, over_seeds
from benchmarks.papers.psp.settings import PULL, end, late_replies

QUICK = ("stop.iterations=10", "seeds=1")

BSP, SSP, BSP_PULL, SSP_PULL = "BSP", "SSP", "BSP pull 90", "SSP pull 90"
EVERY = (BSP, SSP, BSP_PULL, SSP_PULL, PULL.name)
WHERE = "section 5 (future work)"


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge the order of the times."""
    law, iterations = late_replies(experiments[BSP]), experiments[BSP].stop.iterations
    all_wait, one_waits = law.seconds * law.of_all, law.seconds * law.of_a_worker
    times = {name: over_seeds(curves[name], end) / iterations for name in EVERY}
    return [
        Claim(
            f"{WHERE}: time per iteration (closed form)",
            f"BSP > SSP > SSP pull 90: late replies cost BSP {all_wait:.2f} s, a worker of SSP "
            f"{one_waits:.2f} s, with partial pull none",
            f"{times[BSP]:.2f} > {times[SSP]:.2f} > {times[SSP_PULL]:.2f} s",
            all_of([times[SSP].below(times[BSP]), times[SSP_PULL].below(times[SSP])]),
        ),
        Claim(
            f"{WHERE}: time per iteration (closed form)",
            "BSP > BSP pull 90: with partial pull late replies cost nothing, unless four are late",
            f"{times[BSP]:.2f} > {times[BSP_PULL]:.2f} s",
            times[BSP_PULL].below(times[BSP]),
        ),
    ]
