"""`python -m poolproof`: the command line where no script `poolproof` is on the path."""

from __future__ import annotations

from poolproof.cli.command_line import main

if __name__ == "__main__":
    main(prog_name="poolproof")
