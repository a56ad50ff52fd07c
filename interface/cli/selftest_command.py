"""`poolproof selftest`: shows that the checks of live engines catch what is broken on purpose."""

from __future__ import annotations

import sys

import click

__all__ = ["selftest_command"]


@click.command("selftest")
def selftest_command() -> None:
    """Break a table, a key, a free ... of a small server on purpose, one after the other.

    Each must be caught by the oracle of the watch and by an audit of what was recorded; where
    nothing is broken, nothing may be found. No engine is needed.

    Exit status: 0 all were caught, 1 one was not.
    """
    from poolproof.certification.selftest import CORRUPTIONS, selftest
    from poolproof.contract.outside import printable

    holds = True
    for name in CORRUPTIONS:
        result = selftest(name)
        click.echo(printable(f"{'ok  ' if result.holds else 'FAIL'}  {result.sentence()}"))
        holds = holds and result.holds
    sys.exit(0 if holds else 1)
