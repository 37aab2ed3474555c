"""The clock of a real run: the effect of Ctrl-C at different times."""

from __future__ import annotations

import signal

import pytest

from outpace.real.net.clock import RealClock


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_waits_until_the_clock_looks_around(number):
    clock, steps = RealClock(), []

    def handler(number: int, _: object) -> None:
        steps.append(number)
        raise KeyboardInterrupt

    before = signal.signal(number, handler)

    def interrupted() -> None:
        with clock.interruptible():
            signal.raise_signal(number)
            steps.append("it continues")
            clock(clock.now)
            steps.append("never")

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert steps == ["it continues", number]
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)


def test_or_until_the_end_if_it_does_not_and_none_is_lost():
    steps = []

    def handler(*_: object) -> None:
        steps.append("heard")  # and does not raise

    before = signal.signal(signal.SIGINT, handler)
    try:
        with RealClock().interruptible():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            assert steps == []
        assert steps == ["heard", "heard"]
    finally:
        signal.signal(signal.SIGINT, before)
