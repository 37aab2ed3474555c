"""FluentPS, section IV-A: LARS and a large batch. See lars.yaml."""

from __future__ import annotations

from benchmarks.papers.claims import Claim
from benchmarks.papers.curves import Curve, Curves, Experiments
from benchmarks.papers.over_seeds import all_of, over_seeds
from benchmarks.papers.pace import accuracy

QUICK = ("seeds=1",)

# Guessing gives 0.1. All networks of table IV that train are within 0.012 of each other.
FAILED, TRAINED, ALIKE = 0.25, 0.9, 0.03


def claims(curves: Curves, experiments: Experiments) -> list[Claim]:
    """Judge the large batch by the accuracies of these runs."""
    found = {name: over_seeds(runs, reached) for name, runs in curves.items()}
    small, large = found["LARS 64"], found["LARS 1024"]
    return [
        Claim(
            "section IV-A",
            "LARS supports training with a large batch",
            f"{large:.3f} with a batch of 1024, {small:.3f} with 64, after as many epochs",
            all_of([large.above(TRAINED), (small - ALIKE).below(large)]),
            margin=f"above {TRAINED}, and at most {ALIKE} below the small batch",
        ),
        Claim(
            "section IV-A (implied)",
            "SGD does not train with the large batch at that rate",
            f"{found['SGD 1024']:.3f}",
            found["SGD 1024"].below(FAILED),
            margin=f"below {FAILED}",
        ),
        Claim(
            "for comparison",
            "with a small batch both train",
            f"SGD {found['SGD 64']:.3f}, LARS {small:.3f}",
            all_of(each.above(TRAINED) for each in (found["SGD 64"], small)),
            margin=f"above {TRAINED}",
        ),
    ]


def reached(run: Curve) -> float:
    """Return the accuracy at the end, 0 if the run diverged."""
    return 0.0 if run.error is not None else accuracy(run)
