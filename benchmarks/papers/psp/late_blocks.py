"""PSP-SGD, Table 1: why 20/75 may have ended so badly. See late-blocks.yaml."""

from __future__ import annotations

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curves, Experiments
from benchmarks.papers.over_seeds import all_of, over_seeds
from benchmarks.papers.psp.settings import LEAST, PULL, final_error
from benchmarks.papers.psp.table1 import WORSE

QUICK = ("stop.iterations=20", "seeds=1")

NAMES = f"{PULL.name} as printed", f"{LEAST.name} as printed", f"{LEAST.name} slow servers"


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge whether dropped blocks alone make 20/75 worse."""
    pull, least, used = (over_seeds(curves[name], final_error) for name in NAMES)
    return [
        Claim(
            "why (not in the paper)",
            "20/75 is clearly worse, and 28/90 is not, if blocks that come late are dropped, as "
            "printed, and the same eight servers are always the last",
            f"{least:.4f} against {pull:.4f}, and {used:.4f} if late blocks are used",
            all_of((other + WORSE).below(least) for other in (pull, used)),
            margin=f"worse by at least {WORSE}",
        )
    ]
