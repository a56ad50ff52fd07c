"""The reference of the command line, made of what each command says of itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from poolproof.cli.command_line import RANKS, main

__all__ = ["command_line"]


def command_line() -> str:
    """Each command under its rank: how it is called, what it does, its options."""
    context = click.Context(main, info_name="poolproof")
    sections: list[str] = []
    for rank, names in RANKS.items():
        sections.append(f"## {rank}")
        for name in names:
            command = main.get_command(context, name)
            if command is None:
                raise ValueError(f"the help lists {name}, but poolproof has no such command")
            sections += _sections(command, click.Context(command, context, info_name=name), "###")
    return "\n\n".join(sections) + "\n"


def _sections(command: click.Command, context: click.Context, heading: str) -> Iterator[str]:
    """One command, and those that it groups."""
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    yield f"{heading} {context.command_path}"
    yield f"```\n{usage}\n```"
    yield _paragraphs(command.help or "")
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    if options:
        rows = [_row(option, context) for option in options]
        yield "\n".join(["| option | what it does |", "|---|---|", *rows])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                below = click.Context(inner, context, info_name=name)
                yield from _sections(inner, below, f"{heading}#")


def _paragraphs(text: str) -> str:
    r"""The help without click's marks: \b keeps lines as they are, \f ends what is shown."""
    shown = []
    for paragraph in inspect.cleandoc(text.partition("\f")[0]).split("\n\n"):
        kept = paragraph.removeprefix("\b\n")
        shown.append(f"```\n{kept}\n```" if kept != paragraph else " ".join(kept.split()))
    return "\n\n".join(shown)


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    if record is None:
        raise ValueError(f"{context.command_path} does not tell what {option.name} does")
    names, does = (" ".join(text.split()).replace("|", "\\|") for text in record)
    return f"| `{names}` | {does.replace('<', '&lt;')} |"
