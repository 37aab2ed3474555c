"""An exception of a signal handler can end a run while a message is handed over."""

import sys

from outpace.kernel import Kernel, Mailbox


class Interrupted(Exception):
    pass


def run(stop_at):
    """Run two programs that wait for each other; raise before this line of `put` of all in the run.

    Returns whether the run came to its end, the programs that began, and those that cleaned up.
    """
    kernel, begun, cleaned, lines = Kernel(), [], [], 0
    there, back = Mailbox(kernel), Mailbox(kernel)

    async def ask():
        begun.append("ask")
        try:
            for number in range(3):
                await kernel.sleep(0.1)
                there.put(number)
                await back.get()
        finally:
            cleaned.append("ask")

    async def answer():
        begun.append("answer")
        try:
            for _ in range(3):
                back.put(await there.get())
        finally:
            cleaned.append("answer")

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code is not Mailbox.put.__code__:
            return None
        if event == "line":
            lines += 1
            if lines == stop_at:
                raise Interrupted
        return trace

    kernel.spawn(ask(), "ask")
    kernel.spawn(answer(), "answer")
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        kernel.run()
        ended = True
    except Exception:  # the kernel says which program was interrupted
        ended = False
    finally:
        sys.settrace(before)
        kernel.close()
    return ended, begun, cleaned


def test_a_run_that_was_interrupted_in_any_line_of_put_can_be_closed_and_its_programs_clean_up():
    stop_at, ended = 0, False
    while not ended:
        stop_at += 1
        ended, begun, cleaned = run(stop_at)
        assert sorted(begun) == sorted(cleaned), stop_at
    assert stop_at > 12, "six messages of at least two lines"
