"""Warnings at the end of a run name the things that they count."""

from __future__ import annotations

from outpace.experiment.end_warnings import overwritten


def test_scripts_and_files_that_are_not_named_are_counted():
    four, three = [f"f{n}" for n in range(4)], [f"f{n}" for n in range(3)]
    assert list(overwritten(dict.fromkeys("abcde", four))) == [
        ("a, b, c and 2 more", "f0, f1, f2 and 1 more")
    ]
    assert list(overwritten(dict.fromkeys("abc", three))) == [("a, b, c", "f0, f1, f2")]
