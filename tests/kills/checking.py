"""Checks of the results of a run in which processes were killed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from tests.kills.family import WORKERS, Family

from outpace import load_checkpoint


class Broken(AssertionError):
    """A promise that did not hold."""


def check(out: Path, family: Family, iterations: int, deaths: Mapping[str, int]) -> None:
    """Check the folder of a run that has ended.

    Args:
        iterations: number of iterations of each worker.
        deaths: number of deaths, by role. After the death of the coordinator the run is resumed.

    Raises:
        Broken: naming the promise that did not hold.
    """
    summary = json.loads((out / "summary.json").read_text())
    if summary["status"] != "complete":
        raise Broken(f"the summary says {summary['status']}: {summary['error']}")
    if not family.drops and summary["iterations"] != [iterations] * WORKERS:
        raise Broken(f"workers ended after {summary['iterations']} iterations, not {iterations}")
    entries = load_file(out / "model.safetensors")
    both = torch.stack([entries["first"], entries["second"]])
    if not family.script:
        if torn := int((both != both[..., :1]).any(dim=-1).sum()):
            raise Broken(f"of {torn} gradients a server has a part")
        both = both[..., 0]
    times = (both * -WORKERS).round(decimals=3)
    # In an iteration with only n gradients (cut off, or others are lost), each has the weight 1 /
    # n.
    counts = range(1, WORKERS + 1) if family.drops or family.averages else [WORKERS]
    weights = {0.0, *(round(WORKERS / count, 3) for count in counts)}
    if twice := int((times == 2).sum()):
        raise Broken(f"{twice} gradients were applied twice")
    if wrong := {round(each, 3) for each in times.unique().tolist()} - weights:
        raise Broken(f"weights of gradients other than {sorted(weights)}: {sorted(wrong)}")
    missing = int((times == 0).any(dim=0).sum())
    heavy = int((times > 1).sum())
    others = (WORKERS - 1) * int((times == 0).sum())
    if family.averages and heavy > others:
        raise Broken(
            f"{heavy} gradients have more weight than others, and the iterations in which one is "
            f"missing have {others}"
        )
    again = deaths.get("coordinator", 0) + deaths.get("server", 0)  # all begin again
    allowed = family.in_flight * (deaths.get("worker", 0) + WORKERS * again)
    if not family.drops and missing > allowed:
        raise Broken(f"{missing} gradients are missing, and {allowed} may be")
    if not family.drops and missing != summary["updates_lost"]:
        lost = summary["updates_lost"]
        raise Broken(f"{missing} gradients are missing, and updates_lost says {lost}")
    load_checkpoint(out)
