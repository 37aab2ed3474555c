"""The files that a script writes."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import os
from outpace.engine.scripts.files import Written
written = Written()
written.watch()
open(b"\\xff.txt", "w").close()
open("kept.log", "a").close()
print(sorted(os.path.basename(path) for path in written.overwritten))
"""


def test_a_file_whose_name_is_no_text_can_be_reported_and_an_appended_one_is_not(tmp_path):
    # In a separate process, because audit hooks of Python cannot be removed.
    command = [sys.executable, "-c", SCRIPT]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == repr(["\\udcff.txt"])
