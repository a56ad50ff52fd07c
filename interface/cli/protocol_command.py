"""`poolproof protocol smoke|validate 'cmd:./program'`: tests a program before `certify`.

`smoke` shows a short conversation line by line and says what was wrong in it. `validate` checks
every line of a longer one against the published schemas.
"""

from __future__ import annotations

import sys

import click

from poolproof.cli.arguments import target_argument

__all__ = ["protocol_command"]

_TIMEOUT = click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, max=3_600, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds that one answer may take.",
)


@click.group("protocol")
def protocol_command() -> None:
    """Test a program that speaks the protocol: cmd:./program arguments.

    Exit status: 0 it speaks the protocol, 1 it breaks it, 2 it could not be asked.
    """


@protocol_command.command("smoke")
@target_argument()
@_TIMEOUT
def smoke_command(*, target: str, timeout_s: float) -> None:
    """Show a short conversation with TARGET, line by line, and what is wrong in it."""
    from poolproof.cli.protocol_conversations import smoke

    sys.exit(smoke(target, timeout_s))


@protocol_command.command("validate")
@target_argument()
@click.option("--tapes", type=click.IntRange(min=1), default=50, show_default=True)
@_TIMEOUT
def validate_command(*, target: str, tapes: int, timeout_s: float) -> None:
    """Check each line of a longer conversation with TARGET against the published schemas."""
    from poolproof.cli.protocol_conversations import validate

    sys.exit(validate(target, tapes, timeout_s))


@protocol_command.command("schema")
def schema_command() -> None:
    """Print the published JSON Schema of every message."""
    from poolproof.cli.protocol_conversations import schema_text

    click.echo(schema_text(), nl=False)
