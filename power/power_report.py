"""What a power run found: as plain values, as JSON, and as text, laid out like a certificate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from poolproof.contract.outside import printable
from poolproof.power.mutation import Mutation
from poolproof.power.own_tests import OwnVerdict
from poolproof.power.power_jobs import Judged

__all__ = ["Mutant", "MutatedModule", "OwnRun", "PowerReport", "power_text"]


@dataclass(frozen=True, slots=True)
class MutatedModule:
    """A module: its functions that some run enters, and the names of those that none does."""

    name: str
    file: str
    num_functions: int
    never_entered: tuple[str, ...]
    num_candidates: int

    def to_json(self) -> dict[str, Any]:
        """This module as plain JSON values."""
        return {
            "module": self.name,
            "file": self.file,
            "functions": self.num_functions,
            "never_entered": list(self.never_entered),
            "candidates": self.num_candidates,
        }


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mutant and the verdicts on it.

    `executed`: some stage runs one of its lines. `own` is None where no own tests were run.
    """

    mutation: Mutation
    executed: bool
    judged: Judged
    own: OwnVerdict | None = None

    @property
    def finding(self) -> str:
        """By what it is refused, in words."""
        judged = self.judged
        if not judged.refused:
            return "never executed" if not self.executed else "nothing broke"
        return f"{judged.invariant} after {judged.num_commands} commands: {judged.sentence}"

    def to_json(self) -> dict[str, Any]:
        """This mutant as plain JSON values."""
        judged = self.judged
        value: dict[str, Any] = {
            **self.mutation.to_json(),
            "executed": self.executed,
            "refused": judged.refused,
        }
        if judged.refused:
            value |= {
                "stage": judged.stage,
                "invariant": judged.invariant,
                "sentence": judged.sentence,
                "num_commands": judged.num_commands,
            }
        if self.own is not None:
            value |= {"own_tests_refuse": self.own.refused, "own_tests_say": self.own.sentence}
        return value


@dataclass(frozen=True, slots=True)
class OwnRun:
    """The target's own tests: the command, and how long it takes on the unmutated target."""

    command: str
    seconds: float
    never_loaded: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReport:
    """All of one power run; `num_candidates` counts the edits of which the mutants are a sample.

    `also` are the targets that judged what the target let pass.
    `num_equivalent` are candidates that were drawn and change nothing in the compiled code.
    """

    target: str
    target_version: str | None
    depth: str
    seed: int
    also: tuple[str, ...] = ()
    modules: tuple[MutatedModule, ...]
    num_candidates: int
    num_equivalent: int
    mutants: tuple[Mutant, ...]
    stages: tuple[str, ...]
    own: OwnRun | None
    seconds: float

    @property
    def num_refused(self) -> int:
        """Mutants that Poolproof refuses."""
        return sum(mutant.judged.refused for mutant in self.mutants)

    @property
    def num_never_executed(self) -> int:
        """Mutants on lines that no run executes."""
        return sum(not mutant.executed and not mutant.judged.refused for mutant in self.mutants)

    @property
    def num_judged_by_own(self) -> int:
        """Mutants that the target's own tests were run on."""
        return sum(mutant.own is not None for mutant in self.mutants)

    @property
    def num_refused_by_own(self) -> int:
        """Mutants that the target's own tests refuse."""
        return sum(mutant.own is not None and mutant.own.refused for mutant in self.mutants)

    def where(self, *, refused: bool, own: bool | None = None) -> Iterator[Mutant]:
        """The mutants with these verdicts; None where the own tests do not matter."""
        for mutant in self.mutants:
            says = None if mutant.own is None else mutant.own.refused
            if mutant.judged.refused is refused and own in (None, says):
                yield mutant

    def to_json(self) -> dict[str, Any]:
        """This report as plain JSON values."""
        value: dict[str, Any] = {
            "target": self.target,
            "target_version": self.target_version,
            "level": self.depth,
            "seed": self.seed,
            "also": list(self.also),
            "modules": [module.to_json() for module in self.modules],
            "num_candidates": self.num_candidates,
            "num_equivalent": self.num_equivalent,
            "num_mutants": len(self.mutants),
            "num_refused": self.num_refused,
            "num_never_executed": self.num_never_executed,
            "stages": list(self.stages),
            "seconds": round(self.seconds, 1),
            "mutants": [mutant.to_json() for mutant in self.mutants],
        }
        if self.own is not None:
            value["own_tests"] = {
                "command": self.own.command,
                "seconds": round(self.own.seconds, 1),
                "never_loaded": list(self.own.never_loaded),
                "num_mutants": self.num_judged_by_own,
                "num_refused": self.num_refused_by_own,
            }
        return value


MOST_LISTED = 30
"""So many mutants of a list are shown; the JSON form has all."""


def power_text(report: PowerReport) -> RenderableType:
    """The report, to be printed by rich."""
    parts: list[RenderableType] = [
        Padding(Text(f"power of the checks, depth {report.depth}", style="bold"), (1, 0, 0, 0)),
        _pairs(_head(report)),
        Padding(_by_operator(report), (1, 0, 0, 0)),
    ]
    for title, mutants in _lists(report):
        parts.append(Padding(_list(title, mutants), (1, 0, 0, 0)))
    parts.append(Padding(_pairs(_end(report)), (1, 0, 0, 0)))
    return Group(*parts)


def _head(report: PowerReport) -> Iterator[tuple[str, str]]:
    for module in report.modules:
        never = len(module.never_entered)
        left_out = f"; {never} others are never entered and stay as they are" if never else ""
        yield (
            "mutated",
            (
                f"{module.file}: {module.num_candidates:,} places in {module.num_functions} "
                f"functions{left_out}"
            ),
        )
    yield (
        "mutants",
        (
            f"{len(report.mutants):,} of {report.num_candidates:,} places, drawn with seed "
            f"{report.seed}; {report.num_equivalent} more made no program of their own"
        ),
    )
    for name in report.also:
        yield "also judged", f"what {report.target} lets pass, by the plain driver of {name}"
    if report.own is not None:
        yield "own tests", f"{report.own.command} ({report.own.seconds:.0f} s unmutated)"
        for module_name in report.own.never_loaded:
            yield "note", f"the own tests never load {module_name}"


def _by_operator(report: PowerReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    headings = ["what was done to the source", "mutants", "refused", "never executed"]
    headings += ["own tests"] if report.own is not None else []
    for heading in headings:
        number = heading != headings[0]
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    names = sorted({mutant.mutation.operator for mutant in report.mutants})
    groups = [(name, [m for m in report.mutants if m.mutation.operator == name]) for name in names]
    for name, mutants in [*groups, ("all", list(report.mutants))]:
        refused = sum(mutant.judged.refused for mutant in mutants)
        never = sum(not mutant.executed for mutant in mutants)
        row = [name, str(len(mutants)), str(refused), str(never) if never else "-"]
        if report.own is not None:
            own = [mutant.own.refused for mutant in mutants if mutant.own is not None]
            row.append(str(sum(own)) if len(own) == len(mutants) else f"{sum(own)} of {len(own)}")
        table.add_row(*row, style="bold" if name == "all" else "")
    return table


def _lists(report: PowerReport) -> Iterator[tuple[str, list[Mutant]]]:
    if report.own is None:
        survivors = list(report.where(refused=False))
        yield "not refused", [mutant for mutant in survivors if mutant.executed]
        yield "never executed", [mutant for mutant in survivors if not mutant.executed]
        return
    yield "refused by neither", list(report.where(refused=False, own=False))
    yield "refused by the own tests alone", list(report.where(refused=False, own=True))
    yield "refused by Poolproof alone", list(report.where(refused=True, own=False))
    if report.num_judged_by_own < len(report.mutants):
        survivors = [mutant for mutant in report.where(refused=False) if mutant.own is None]
        yield "not refused, the own tests not run", survivors


def _list(title: str, mutants: list[Mutant]) -> Table:
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False, title_justify="left",
        title=f"{title}: {len(mutants)}", title_style="bold",
    )  # fmt: skip
    table.add_column(no_wrap=True, min_width=2)
    table.add_column(overflow="fold")
    for mutant in mutants[:MOST_LISTED]:
        mutation = mutant.mutation
        place = f"{mutation.path.name}:{mutation.line}"
        table.add_row("", Text(printable(f"{place}  {mutation.function}, {mutation.operator}")))
        table.add_row("", Text(printable(f"  - {mutation.before}"), style="dim"))
        table.add_row("", Text(printable(f"  + {mutation.after}"), style="dim"))
        for line in _verdicts(mutant):
            table.add_row("", Text(printable(f"  {line}")))
    if len(mutants) > MOST_LISTED:
        table.add_row("", f"and {len(mutants) - MOST_LISTED} more; --json F writes all of them")
    return table


def _verdicts(mutant: Mutant) -> Iterator[str]:
    if mutant.judged.refused or not mutant.executed:
        yield mutant.finding
    if mutant.own is not None and mutant.own.refused:
        yield f"own tests: {mutant.own.sentence}"


def _end(report: PowerReport) -> Iterator[tuple[str, str]]:
    total = len(report.mutants)
    yield "refused", f"{report.num_refused} of {total}{_share(report.num_refused, total)}"
    never = report.num_never_executed
    if never:
        reached = total - never
        yield "", f"{report.num_refused} of the {reached} whose lines some run executes"
    if report.own is not None:
        own, judged = report.num_refused_by_own, report.num_judged_by_own
        yield "own tests", f"{own} of {judged}{_share(own, judged)}"
    yield (
        "not covered",
        (
            "signatures, class bodies and module-level code are not mutated; a mutant that "
            "survives may be equivalent to the original"
        ),
    )
    yield "took", f"{report.seconds:.0f} s"


def _share(part: int, total: int) -> str:
    return f", {100 * part / total:.1f} %" if total else ""


def _pairs(pairs: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    last = ""
    for label, value in pairs:
        table.add_row(label if label != last else "", Text(printable(value)))
        last = label
    return table
