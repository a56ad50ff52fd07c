"""The command line: finds the sub-command, turns errors into lines and exit statuses.

0 holds, 1 a violation was found, 2 the run could not be carried out or concluded. A mistake of the
user's ends in one or two lines; anything else is a bug of ours and says so. Sub-commands are
imported when they are run, so that `poolproof --help` is quick.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import NoReturn

import click

from poolproof import __version__
from poolproof.compiled_core import left_aside, left_aside_line
from poolproof.contract.errors import PoolproofError
from poolproof.harness.ending_signals import ending_signals_raise

__all__ = ["RANKS", "drivers_are_compiled", "main"]

_MOST_OF_A_MESSAGE = 10_000

RANKS = {
    "Every day": {
        "certify": "Check an allocator and print its certificate.",
        "new": "Write the skeleton of an allocator to fill in, or files for CI.",
        "replay": "Run a trace again and see whether its violation still shows.",
        "show": "Draw a trace step by step, or write it as a test or a web page.",
        "explain": "Say what a name in a report means, and what usually causes it.",
        "fuzz": "Run a campaign that looks for states nobody has seen.",
        "dev": "Certify a file again whenever it changes.",
        "bisect": "Find the commit since which a trace fails.",
        "completion": "Let a shell complete commands and options.",
    },
    "Targets and engines": {
        "list": "List the built-in targets.",
        "engines": "Fetch the sources of engines that are built-in targets.",
        "kernels": "Check paged attention against dense attention.",
        "workload": "Replay real request traces, checking as they run.",
        "explore": "Visit every state of a small pool.",
        "diff": "Compare two targets on one tape.",
        "shrink": "Make a failing trace as short as possible.",
        "protocol": "Test a program that speaks the protocol of cmd: targets.",
    },
    "Live engines": {
        "watch": "Look at a live engine from outside.",
        "audit": "Judge a recording of what a live engine did.",
        "consumer": "Check an index that routers fill from KV events.",
        "selftest": "See that the checks of live engines catch what is broken on purpose.",
    },
    "Poolproof's own workshop": {
        "prove": "Prove the invariants for every size, with Z3.",
        "symbolic": "Confirm the arithmetic over all inputs, with CrossHair.",
        "bugs": "Plant real bugs and see which checks catch them.",
    },
}
"""The commands with what each does, by how often they are wanted."""

_SUMMARIES = {name: does for rank in RANKS.values() for name, does in rank.items()}


class CommandLine(click.Group):
    """The group of sub-commands, each in the module `<name>_command.py`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return list(_SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- the same
        if cmd_name not in _SUMMARIES:
            return None
        module = importlib.import_module(f"poolproof.cli.{cmd_name}_command")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 -- the same
        formatter: click.HelpFormatter,
    ) -> None:
        width = max(map(len, _SUMMARIES))
        for rank, commands in RANKS.items():
            with formatter.section(rank):
                formatter.write_dl([(name.ljust(width), does) for name, does in commands.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the sub-command; whatever it raises ends in a message and an exit status."""
        from poolproof.cli.standard_streams import lasting_streams

        with lasting_streams():
            at_start = _say_what_is_left_aside()
            try:
                return self._invoke(ctx)
            finally:
                # A file that cannot be loaded shows only when it is imported.
                _say_what_is_left_aside(but=at_start)

    def _invoke(self, ctx: click.Context) -> object:
        try:
            with ending_signals_raise():
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, SystemExit):
            raise
        except KeyboardInterrupt as interrupt:
            # click would exit with 1, which says that a violation was found.
            by = f" by {interrupt}" if str(interrupt) else ""
            _stop(f"interrupted{by}, nothing was concluded")
        except Exception as error:  # noqa: BLE001 -- the one place where everything ends
            if isinstance(error, PoolproofError):
                _stop(str(error))
            _stop_on_our_bug(error, debug=bool(ctx.params.get("debug")))


def _say_what_is_left_aside(but: frozenset[str] = frozenset()) -> frozenset[str]:
    line = left_aside_line(but)
    if line:
        click.echo(line, err=True)
    return frozenset(left_aside())


def _stop(message: str) -> NoReturn:
    from poolproof.contract.outside import cut

    click.echo(f"poolproof: {cut(message, _MOST_OF_A_MESSAGE)}", err=True)
    sys.exit(2)


def _stop_on_our_bug(error: Exception, *, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exception(error)
    from poolproof.contract.outside import said_by

    frame = traceback.extract_tb(error.__traceback__)[-1]
    cause = next(iter(said_by(error, 200).splitlines()), "")
    place = f"{os.path.basename(frame.filename)} line {frame.lineno}"  # noqa: PTH119 -- text only
    hint = "Report it with the traceback above" if debug else (
        "Report it with what `poolproof --debug ...` prints"
    )  # fmt: skip
    click.echo(
        f"poolproof: this is a bug in Poolproof {__version__}, and says nothing about your "
        f"allocator: {type(error).__name__}: {cause} ({place}).\n"
        f"{hint}, Python {sys.version.split()[0]} and the target's version.",
        err=True,
    )
    sys.exit(2)


def drivers_are_compiled() -> bool:
    """Whether steps go through compiled code, made of the same sources by setup.py."""
    spec = find_spec("poolproof.harness.pool_check")
    return spec is not None and str(spec.origin).endswith(tuple(EXTENSION_SUFFIXES))


def _show_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        _say_what_is_left_aside()
        click.echo(f"poolproof {__version__}{', compiled drivers' * drivers_are_compiled()}")
        ctx.exit()


@click.group(cls=CommandLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version, and whether the drivers are compiled.",
)
@click.option("--debug", is_flag=True, help="Show tracebacks of Poolproof's own bugs.")
def main(debug: bool) -> None:
    """Certify the KV-cache block allocators of LLM servers.

    Exit status: 0 holds, 1 a violation was found, 2 the run could not be carried out or concluded.
    What a word of a report means: poolproof explain WORD.
    """
