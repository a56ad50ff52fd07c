"""Certificates in Markdown, for a pull request or the summary page of a CI run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from poolproof.certification.certificate import Certificate
from poolproof.certification.kernel_certificate import KernelCertificate
from poolproof.report.finding_report import finding_report, plain_text
from poolproof.report.text_certificate import result_lines, verdict_line
from poolproof.report.wording import in_a_template
from poolproof.targets.target_spec import profile_words

__all__ = ["markdown_certificate", "markdown_kernel_certificate"]


def _environment() -> Environment:
    """Our templates, with filters that make any value harmless in Markdown."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=in_a_template,
        autoescape=False,  # noqa: S701 -- Markdown is not HTML; `_cell` makes values harmless in it
    )
    environment.filters["cell"] = _cell
    environment.filters["indented"] = _indented
    return environment


def markdown_certificate(certificate: Certificate) -> str:
    """A judged certificate as a Markdown document."""
    sections = [
        ("Finding", [(f, plain_text(finding_report(f))) for f in certificate.findings]),
        ("Hardening", [(f, plain_text(finding_report(f))) for f in certificate.hardening]),
    ]
    return (
        _environment()
        .get_template("certificate.md")
        .render(
            certificate=certificate,
            verdict_line=verdict_line(certificate),
            declared=profile_words(certificate.profile) or "nothing declared",
            assumed=profile_words(certificate.profile, certificate.assumed),
            results=partial(result_lines, certificate),
            sections=sections,
        )
    )


def markdown_kernel_certificate(certificate: KernelCertificate) -> str:
    """The same of a kernel."""
    template = _environment().get_template("kernels.md")
    return template.render(
        certificate=certificate, run=certificate.run, verdict_line=verdict_line(certificate)
    )


def _cell(value: object) -> str:
    """Text in one line, safe from Markdown's tables, links and tags."""
    text = " ".join(str(value).split())
    for special in "\\|`*_<>[]":
        text = text.replace(special, f"\\{special}")
    return text


def _indented(report: str) -> str:
    """A report as a code block that nothing in the report can end: four blanks before each line."""
    return "\n".join(f"    {line}" for line in report.splitlines())
