"""Stand-ins of engines, written from what an adapter declares that it uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use

PREFIX = "renamed_"


def write_modules(folder: Path, uses: Iterable[Use]) -> None:
    """A file for each module below the folder, with the classes and functions of these uses."""
    texts: dict[str, list[str]] = {}
    for use in uses:
        texts.setdefault(use.module, []).append(_source(use))
    for module, parts in texts.items():
        path = folder.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(parts), encoding="utf-8")


def _source(use: Use) -> str:
    by_method: dict[str, list[Call]] = {}
    for call in use.calls:
        by_method.setdefault(call.method, []).append(call)
    if not use.name:
        functions = "".join(_function(calls) for calls in by_method.values())
        return functions + "".join(f"{name} = None\n" for name in use.reads)
    methods = "".join(_indented(_function(calls, "self")) for calls in by_method.values())
    sets = "".join(f"        self.{name} = None\n" for name in use.reads)
    return f"class {use.name}:\n    def _begin(self):\n{sets or '        pass'}\n{methods}"


def _function(calls: list[Call], *before: str) -> str:
    longest = max((call.arguments for call in calls), key=len)
    named = dict.fromkeys(name for call in calls for name in call.named)
    shown = (*before, *longest, *(("*",) if named else ()), *(f"{name}=None" for name in named))
    return f"def {calls[0].method}({', '.join(shown)}): ...\n"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def misfits(uses: tuple[Use, ...]) -> Iterator[tuple[str, tuple[Use, ...]]]:
    """Each way to miss one thing: the words that name it, and uses whose stand-in misses it."""
    for number, use in enumerate(uses):

        def changed(place: int = number, **what: object) -> tuple[Use, ...]:
            return (*uses[:place], replace(uses[place], **what), *uses[place + 1 :])

        if use.name:
            yield f"{use.module} has no {use.name}", changed(name=f"{PREFIX}{use.name}")
        for call in use.calls:
            others = tuple(each for each in use.calls if each.method != call.method)
            if call.method != "__init__":
                renamed = Call(f"{PREFIX}{call.method}", call.arguments, call.named)
                yield f"has no method `{call.method}`", changed(calls=(*others, renamed))
            more = Call(call.method, (*call.arguments, "one_more"), call.named)
            named = "the constructor" if call.method == "__init__" else f"`{call.method}`"
            yield f"{named} takes (", changed(calls=(*others, more))
