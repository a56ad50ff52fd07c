"""What a power run found as a report, laid out like a certificate, and as tests.

`certify --power` writes it after the certificate of the target, as one report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from poolproof.power.power_report import MeasuredCertificate, Mutant, PowerReport
from poolproof.report.certificate_document import CERTIFICATE, certificate_document
from poolproof.report.document import (
    Block,
    DataTable,
    Document,
    Fact,
    Gap,
    Narrow,
    Paragraph,
    ReportPart,
    TableColumn,
    TableRow,
    Tone,
    Wide,
    facts,
    lines,
)
from poolproof.report.forms import ReportKind, json_text
from poolproof.report.junit_form import CaseOutcome, JunitCase, JunitSuite

__all__ = ["MEASURED_CERTIFICATE", "NOT_MEASURED", "POWER", "power_document"]

NOT_MEASURED = (
    "the power of the checks was not measured: the unmutated target has to hold first; accept its "
    "findings with --known, or repair it"
)

MOST_LISTED = 30
"""So many mutants of a list are shown; the JSON form has all."""

_NOT_COVERED = (
    "signatures, class bodies and module-level code are not mutated; a mutant that survives may be "
    "equivalent to the original"
)


def power_document(report: PowerReport) -> Document:
    """The whole report."""
    total = len(report.mutants)
    verdict = f"{report.num_refused} of {total} mutants refused"
    if report.own is not None:
        verdict += f", {report.num_refused_by_own} of {report.num_judged_by_own} by the own tests"
    blocks: list[Block] = [
        Gap(),
        Paragraph(f"power of the checks, depth {report.depth}", Tone.STRONG),
        facts(*_head(report)),
        Gap(),
        _by_operator(report),
    ]
    for title, mutants in _lists(report):
        blocks += [Gap(), _listed(f"{title}: {len(mutants)}", mutants)]
    blocks += [Gap(), facts(*_end(report))]
    return Document(f"Power of the checks of {report.target}", verdict, tuple(blocks))


def _head(report: PowerReport) -> Iterator[Fact]:
    for module in report.modules:
        never = len(module.never_entered)
        left_out = f"; {never} others are never entered and stay as they are" if never else ""
        yield Fact(
            "mutated",
            f"{module.file}: {module.num_candidates:,} places in {module.num_functions} "
            f"functions{left_out}",
        )
    yield Fact(
        "mutants",
        f"{len(report.mutants):,} of {report.num_candidates:,} places, drawn with seed "
        f"{report.seed}; {report.num_equivalent} more made no program of their own",
    )
    for name in report.also:
        yield Fact("also judged", f"what {report.target} lets pass, by the plain driver of {name}")
    if report.own is not None:
        yield Fact("own tests", f"{report.own.command} ({report.own.seconds:.0f} s unmutated)")
        for module_name in report.own.never_loaded:
            yield Fact("note", f"the own tests never load {module_name}")


def _by_operator(report: PowerReport) -> DataTable:
    numbers = ["mutants", "refused", "never executed"]
    numbers += ["own tests"] if report.own is not None else []
    columns = (
        TableColumn("what was done to the source", wraps=False),
        *(TableColumn(heading, is_number=True, wraps=False) for heading in numbers),
    )
    names = sorted({mutant.mutation.operator for mutant in report.mutants})
    groups = [(name, [m for m in report.mutants if m.mutation.operator == name]) for name in names]
    rows = []
    for name, mutants in [*groups, ("all", list(report.mutants))]:
        refused = sum(mutant.judged.refused for mutant in mutants)
        never = sum(not mutant.executed for mutant in mutants)
        values: list[str | int | None] = [name, len(mutants), refused, never or None]
        if report.own is not None:
            own = [mutant.own.refused for mutant in mutants if mutant.own is not None]
            values.append(sum(own) if len(own) == len(mutants) else f"{sum(own)} of {len(own)}")
        rows.append(TableRow.of(*values, tone=Tone.STRONG if name == "all" else Tone.PLAIN))
    return DataTable(columns, tuple(rows))


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


def _listed(title: str, mutants: Sequence[Mutant]) -> ReportPart:
    """Three lines each on a terminal, a row each on a page."""
    shown = mutants[:MOST_LISTED]
    rows = [row for mutant in shown for row in _rows(mutant)]
    more = f"and {len(mutants) - MOST_LISTED} more; --json F writes all of them"
    if len(mutants) > MOST_LISTED:
        rows.append(Fact("", more))
    blocks: list[Block] = [Narrow((facts(*rows, label_width=2),))]
    if shown:
        blocks.append(Wide((_table(shown),)))
    if len(mutants) > MOST_LISTED:
        blocks.append(Wide((Paragraph(more, Tone.DIM),)))
    return ReportPart(title, tuple(blocks))


def _rows(mutant: Mutant) -> Iterator[Fact]:
    mutation = mutant.mutation
    yield Fact("", f"{_place(mutant)}  {mutation.function}, {mutation.operator}")
    yield Fact("", f"  - {mutation.before}", Tone.DIM)
    yield Fact("", f"  + {mutation.after}", Tone.DIM)
    for line in _verdicts(mutant):
        yield Fact("", f"  {line}")


def _table(mutants: Sequence[Mutant]) -> DataTable:
    headings = ("place", "function", "what was done", "before", "after", "verdict")
    rows = tuple(
        TableRow.of(
            _place(mutant),
            mutant.mutation.function,
            mutant.mutation.operator,
            mutant.mutation.before,
            mutant.mutation.after,
            lines(_verdicts(mutant)) or mutant.finding,
        )
        for mutant in mutants
    )
    return DataTable(tuple(TableColumn(heading) for heading in headings), rows)


def _place(mutant: Mutant) -> str:
    return f"{mutant.mutation.path.name}:{mutant.mutation.line}"


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
    yield "not covered", _NOT_COVERED
    yield "took", f"{report.seconds:.0f} s"


def _share(part: int, total: int) -> str:
    return f", {100 * part / total:.1f} %" if total else ""


def _suites(report: PowerReport) -> Iterator[JunitSuite]:
    """A suite for each file with a case for each mutant.

    A mutant that nothing refuses is skipped: it measures the checks, and fails no run.
    """
    for module in report.modules:
        mutants = [m for m in report.mutants if m.mutation.module == module.name]
        yield JunitSuite(module.file, tuple(map(_case, mutants)))


def _case(mutant: Mutant) -> JunitCase:
    mutation = mutant.mutation
    said = "; ".join(_verdicts(mutant)) or mutant.finding
    refused = mutant.judged.refused or (mutant.own is not None and mutant.own.refused)
    return JunitCase(
        name=f"{_place(mutant)} {mutation.function}, {mutation.operator}",
        outcome=CaseOutcome.PASSED if refused else CaseOutcome.SKIPPED,
        message=said,
        output=f"- {mutation.before}\n+ {mutation.after}\n{said}",
    )


POWER: ReportKind[PowerReport] = ReportKind(
    document_of=power_document,
    json_of=lambda report: json_text(report.to_json(), indent=1),
    name_of=lambda report: report.target,
    suites_of=lambda report: tuple(_suites(report)),
)


def _measured_document(measured: MeasuredCertificate) -> Document:
    """The certificate, and below it the power of the checks behind it."""
    certificate = certificate_document(measured.certificate)
    if measured.power is None:
        title, verdict = "Power of the checks", "power not measured"
        blocks: tuple[Block, ...] = (Gap(), Paragraph(NOT_MEASURED))
    else:
        power = power_document(measured.power)
        title, verdict, blocks = power.title, power.verdict, power.blocks
    return Document(
        certificate.title,
        f"{certificate.verdict}; {verdict}",
        (*certificate.blocks, ReportPart(title, blocks, is_titled=False)),
        is_broken=certificate.is_broken,
    )


def _measured_suites(measured: MeasuredCertificate) -> Iterator[JunitSuite]:
    yield from CERTIFICATE.suites_of(measured.certificate)
    if measured.power is not None:
        yield from POWER.suites_of(measured.power)


MEASURED_CERTIFICATE: ReportKind[MeasuredCertificate] = ReportKind(
    document_of=_measured_document,
    json_of=lambda measured: json_text(measured.to_json(), indent=1),
    name_of=lambda measured: measured.certificate.target,
    suites_of=lambda measured: tuple(_measured_suites(measured)),
)
