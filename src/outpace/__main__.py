"""`python -m outpace`, the same as the command `outpace`."""

from outpace.cli import main

main()
