"""The reference of the configuration is made from the dataclasses."""

from __future__ import annotations

from docs.reference import PAGE, TABLES, with_tables


def test_the_reference_is_up_to_date():
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "run python -m docs.reference"
    assert all(f"<!-- reference: {name} -->" in page for name in TABLES)
