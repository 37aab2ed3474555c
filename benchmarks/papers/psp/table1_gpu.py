"""PSP-SGD, Table 1, at the paper's size: judged as the small one. See table1-gpu.yaml."""

from benchmarks.papers.psp.table1 import FIGURES, claims

__all__ = ["FIGURES", "NEEDS", "claims"]

NEEDS = "a machine with a GPU"
