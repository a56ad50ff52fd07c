"""An inferred profile as a report: the rows to paste, and what each changed one costs."""

from __future__ import annotations

from collections.abc import Iterator

from poolproof import __version__
from poolproof.certification.inference import InferenceOutcome, InferredProfile
from poolproof.certification.verdict import reasons_inconclusive
from poolproof.contract.trace import Trace
from poolproof.report.certificate_document import verdict_fact
from poolproof.report.document import Block, Document, Fact, Gap, Paragraph, Tone, facts
from poolproof.report.finding_report import trace_report
from poolproof.targets.target_spec import profile_words

__all__ = ["inferred_document"]


def inferred_document(found: InferredProfile) -> Document:
    """What was found."""
    blocks: list[Block] = [
        Paragraph(f"poolproof {__version__}, inferred profile", Tone.STRONG),
        facts(*_head(found)),
    ]
    shown = [found.unexplained] if found.unexplained is not None else list(_hidden(found))
    for trace in shown:
        blocks += [Gap(), *trace_report(trace).blocks, Gap()]
    blocks.append(facts(*_changes(found), verdict_fact(_verdict(found))))
    title = f"Inferred profile of {found.target}"
    return Document(title, _verdict(found), tuple(blocks), is_broken=bool(found.exit_status))


def _head(found: InferredProfile) -> Iterator[tuple[str, str]]:
    yield "target", found.target
    yield "declared", profile_words(found.declared) or "nothing"
    if found.declared.assumed:
        yield "assumed", profile_words(found.declared, found.declared.assumed)
    failures = "1 failure" if found.num_failures == 1 else f"{found.num_failures} failures"
    profiles = "1 profile" if found.num_drives == 1 else f"{found.num_drives} profiles"
    yield "tried", f"{failures} in {found.num_replays:,} replays, {profiles} driven"


def _hidden(found: InferredProfile) -> Iterator[Trace]:
    """What the rows hide that silence a check, each failure once."""
    traces = [found.explained.get(change.row) for change in found.silencing]
    yield from {trace.fingerprint: trace for trace in traces if trace is not None}.values()


def _changes(found: InferredProfile) -> Iterator[Fact]:
    for change in found.changes:
        kind = "silences a check" if change.checks_less else "another design, checked as strictly"
        yield Fact("change", f"{change}, {kind}: {change.costs}")
        trace = found.explained.get(change.row)
        if trace is not None and trace.violation is not None:
            yield Fact("without it", f"{trace.violation.invariant}, {trace.violation.sentence}")
    if found.profile is not None and found.changes:
        rows = ", ".join(f'"{row}": {_literal(value)}' for row, value in found.rows.items())
        yield Fact("if so" if found.silencing else "paste", f"profile = {{{rows}}}")


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _verdict(found: InferredProfile) -> str:
    if found.outcome is InferenceOutcome.NO_ROWS:
        return "REFUSED: no row explains this: every row was tried for it, and pairs of rows"
    if found.outcome is InferenceOutcome.BUDGET:
        return f"INCONCLUSIVE: not every set of rows was tried, the budget ended: {found.why}"
    if found.outcome is InferenceOutcome.LOST:
        return f"INCONCLUSIVE: rows could not be tried, since the target was lost: {found.why}"
    certificate = found.certificate
    assert certificate is not None
    if found.silencing:
        rows = ", ".join(map(str, found.silencing))
        return (
            f"UNDECIDED: nothing else fails at {certificate.depth} where {rows} silences what is "
            "above; a bug would look the same: state it only if whoever wrote the target meant it"
        )
    if found.exit_status:
        reasons = "; ".join(reasons_inconclusive(certificate))
        return f"INCONCLUSIVE: nothing fails at {certificate.depth} with these rows, but {reasons}"
    if not found.changes:
        return f"HOLDS at {certificate.depth} under its own profile; no row has to change"
    return (
        f"HOLDS at {certificate.depth} with these rows; state them only if they are what you mean"
    )
