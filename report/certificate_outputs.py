"""The files that a certification leaves behind, apart from what it prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from poolproof.certification.certificate import Certificate
from poolproof.certification.kernel_certificate import KernelCertificate
from poolproof.certification.known_findings import ENTRIES_FILE, entries_for
from poolproof.certification.verdict import failing
from poolproof.report.badge import badge
from poolproof.report.certificate_document import CERTIFICATE, certificate_document
from poolproof.report.code_scanning import sarif
from poolproof.report.forms import Form
from poolproof.report.kernel_document import KERNEL_CERTIFICATE, kernel_document
from poolproof.report.kernels_picture import errors_picture
from poolproof.report.output_files import (
    OutputError,
    check_folder,
    write_file,
    write_if_possible,
)
from poolproof.report.report_files import ReportFiles, form_names
from poolproof.report.text_form import plain_text
from poolproof.report.trace_files import DEFAULT_FOLDER, write_findings

__all__ = ["KernelOutputs", "Outputs"]

_CERTIFICATE_FILES = form_names("certificate")
_KERNEL_FILES = form_names("report")
_SARIF, _BADGE = "certificate.sarif", "badge.svg"


class Outputs(ReportFiles):
    """Where the certificate of an allocator goes, and its traces."""

    __slots__ = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that will be written, apart from traces."""
        names = (*_CERTIFICATE_FILES, _SARIF, _BADGE, ENTRIES_FILE)
        folder = self.folder or DEFAULT_FOLDER
        of_folder = [folder / name for name in names] if self.folder else [folder / ENTRIES_FILE]
        return (*self.singles, *of_folder)

    def write(self, certificate: Certificate) -> Mapping[str, str]:
        """Write all forms of a judged certificate; the trace file of each fingerprint.

        What cannot be written is named on standard error, and the others are written.
        """
        files = self.keep_traces(certificate)
        forms = {
            name: CERTIFICATE.written(certificate, form)
            for name, form in _CERTIFICATE_FILES.items()
            if form is not Form.TEXT
        }
        # The text names the files of the traces.
        forms[_SARIF] = sarif(certificate)
        forms[_BADGE] = badge(certificate)
        forms["certificate.txt"] = plain_text(certificate_document(certificate, files))
        self.put(forms)
        return files

    def keep_traces(self, certificate: Certificate) -> Mapping[str, str]:
        """Write the traces alone, and entries that accept the findings; as `write`."""
        if self.folder is None:
            return _keep_traces(certificate)
        _write_entries(self.folder, certificate)
        return write_findings(self.folder, (*certificate.findings, *certificate.hardening))


class KernelOutputs(ReportFiles):
    """Where the certificate of a kernel goes. It has a picture of its errors, and no traces."""

    __slots__ = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that will be written."""
        names = (*_KERNEL_FILES, "errors.svg")
        of_folder = [self.folder / name for name in names] if self.folder else []
        return (*self.singles, *of_folder)

    def write(self, certificate: KernelCertificate) -> Path | None:
        """Write all forms of a judged certificate; where its JSON is."""
        kept = self.json_file or (self.folder and self.folder / "report.json")
        where = None if kept is None else str(kept)
        forms = {
            name: KERNEL_CERTIFICATE.written(certificate, form)
            for name, form in _KERNEL_FILES.items()
            if form is not Form.TEXT
        }
        forms["errors.svg"] = errors_picture(certificate.run)
        forms["report.txt"] = plain_text(kernel_document(certificate, where))
        self.put(forms)
        return kept


def _keep_traces(certificate: Certificate) -> Mapping[str, str]:
    """Without --report, traces are kept in the working folder, where `show f-...` finds them.

    These files were not asked for, so it is not an error if they cannot be written.
    """
    findings = (*certificate.findings, *certificate.hardening)
    if not findings:
        return {}
    try:
        check_folder(DEFAULT_FOLDER)
        # The folder holds what one run left; version control is not to see it.
        write_file(DEFAULT_FOLDER / ".gitignore", "*\n")
        _write_entries(DEFAULT_FOLDER, certificate)
        return write_findings(DEFAULT_FOLDER, findings)
    except OutputError as error:
        click.echo(f"poolproof: the traces are not kept: {error}", err=True)
        return {}


def _write_entries(folder: Path, certificate: Certificate) -> None:
    """Write entries that accept the findings that fail the run, for the user's known file."""
    fails = failing(certificate)
    if fails:
        write_if_possible(folder / ENTRIES_FILE, entries_for(fails))
