"""`poolproof show TRACE`: draws a trace step by step, or writes it as a test, script or page.

The folder of a campaign is shown as its summary, or written in any form that a report has; so is
the certificate that `certify --json` wrote, also as a badge.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["show_command"]

# A click.Choice gives the user these in this order. Forms of reports by their names (`Form`).
_OF_TRACES = ("text", "markdown", "html", "pytest", "python")
_OF_CAMPAIGNS = ("text", "markdown", "html", "json", "junit")
_OF_CERTIFICATES = (*_OF_CAMPAIGNS, "sarif", "badge")


@click.command("show")
@click.argument("trace")
@click.option(
    "--as",
    "form",
    type=click.Choice(tuple(dict.fromkeys((*_OF_TRACES, *_OF_CERTIFICATES)))),
    default="text",
    help="text: a drawing. pytest: a regression test, which uses Poolproof except for engines. "
    "python: a script that uses the target's own methods and nothing else. html: one page that "
    "needs no network. json and junit: for campaigns and certificates. sarif and badge: for "
    "certificates.",
)
@click.option("-o", "--output", type=click.Path(), help="Write to this file.")
def show_command(trace: str, form: str, output: str | None) -> None:
    """Show TRACE, a trace file or the fingerprint of a finding, without running its target.

    A certificate that `certify --json` wrote is shown as it was. For the folder of a campaign, show
    its summary; `--as html` and `--as markdown` also have its
    curves. The exit status is then that of the campaign: 0 nothing was broken, 1 something was, 2
    not concluded.
    """
    from poolproof.report.campaign_record import is_campaign
    from poolproof.report.finding_report import trace_report
    from poolproof.report.forms import Form, document_text
    from poolproof.report.output_files import check_file
    from poolproof.report.text_form import show
    from poolproof.report.trace_files import find_trace

    if output is not None:
        check_file(Path(output))
    # An empty name is no folder, though Path takes it for this one.
    if trace.strip() and is_campaign(Path(trace)):
        sys.exit(_show_campaign(Path(trace), form, output))
    if trace.endswith(".json"):
        _show_certificate(Path(trace), form, output)
        return
    _, found = find_trace(trace)
    if form not in _OF_TRACES:
        raise click.UsageError(
            f"{trace} is a trace, which is shown as {_listed(_OF_TRACES)}; its file is JSON already"
        )
    if form in ("pytest", "python"):
        from poolproof.report.level_views import VIEWS

        view = VIEWS[found.level]
        place = None if output is None else Path(output)
        text = view.test(found, place) if form == "pytest" else view.script(found)
    elif form == "text" and output is None:
        show(trace_report(found))
        return
    else:
        text = document_text(trace_report(found), Form(form))
    _put(text, output)


def _show_campaign(folder: Path, form: str, output: str | None) -> int:
    from poolproof.report.campaign_document import CAMPAIGN
    from poolproof.report.campaign_record import read_record
    from poolproof.report.forms import Form

    if form not in _OF_CAMPAIGNS:
        raise click.UsageError(
            f"{folder} is the folder of a campaign, which is shown as {_listed(_OF_CAMPAIGNS)}; "
            f"for {form} name one of its findings"
        )
    record = read_record(folder)
    _put(CAMPAIGN.written(record, Form(form)), output)
    return record.exit_status


def _show_certificate(path: Path, form: str, output: str | None) -> None:
    from poolproof.certification.baseline import read_certificate
    from poolproof.report.badge import badge
    from poolproof.report.certificate_document import CERTIFICATE
    from poolproof.report.code_scanning import sarif
    from poolproof.report.forms import Form

    if form not in _OF_CERTIFICATES:
        raise click.UsageError(
            f"{path} is a certificate, which is shown as {_listed(_OF_CERTIFICATES)}; for {form} "
            "name the trace of a finding"
        )
    certificate = read_certificate(path)
    by_itself = {"sarif": sarif, "badge": badge}.get(form)
    text = (
        CERTIFICATE.written(certificate, Form(form))
        if by_itself is None
        else by_itself(certificate)
    )
    _put(text, output)


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _put(text: str, output: str | None) -> None:
    from poolproof.report.output_files import write_file

    if output is None:
        click.echo(text, nl=False)
    else:
        write_file(Path(output), text)
