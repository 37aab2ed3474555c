"""Checks of your own strategies, run-time laws, trackers and launchers.

    import outpace.testing

    def test_my_policy_keeps_its_promises():
        outpace.testing.check_policy(MyPolicy(staleness=2), bound=2)

Each check raises AssertionError for the first promise that is broken. The error names the promise,
the input that shows it, and what to do. Outpace's own tests use the same functions. No test
framework is needed.
"""

from __future__ import annotations

from outpace.support.exports import lazily

# Imported on first use, as a check of a policy needs no launcher and a check of a tracker needs no
# runtime.
__getattr__, __all__ = lazily(__name__, __file__)
