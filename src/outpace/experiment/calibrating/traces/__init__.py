"""Reads traces of torch.profiler, one per rank of a data-parallel run."""

from outpace.experiment.calibrating.traces.ranks import Traces, read_traces

__all__ = ["Traces", "read_traces"]
