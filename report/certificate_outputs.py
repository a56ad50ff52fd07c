"""The files that a certification leaves behind, apart from what it prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from poolproof.certification.certificate import Certificate
from poolproof.certification.kernel_certificate import KernelCertificate
from poolproof.certification.known_findings import ENTRIES_FILE, entries_for
from poolproof.certification.verdict import failing
from poolproof.report.certificate_document import CERTIFICATE, certificate_document
from poolproof.report.forms import Form
from poolproof.report.kernel_document import KERNEL_CERTIFICATE, kernel_document
from poolproof.report.kernels_picture import errors_picture
from poolproof.report.output_files import (
    OutputError,
    check_file,
    check_folder,
    write_file,
    write_if_possible,
)
from poolproof.report.text_form import plain_text
from poolproof.report.trace_files import DEFAULT_FOLDER, write_findings

__all__ = ["KernelOutputs", "Outputs"]

# The text names the files that were written before it, and comes after them.
_CERTIFICATE_FILES = {
    "certificate.json": Form.JSON,
    "certificate.md": Form.MARKDOWN,
    "certificate.html": Form.HTML,
    "junit.xml": Form.JUNIT,
}
_KERNEL_FILES = {
    "report.json": Form.JSON,
    "report.md": Form.MARKDOWN,
    "report.html": Form.HTML,
    "junit.xml": Form.JUNIT,
}


@dataclass(frozen=True, slots=True)
class _Files:
    """Where a certificate goes: single files, and a folder that gets every form."""

    json_file: Path | None = None
    junit_file: Path | None = None
    markdown_file: Path | None = None
    folder: Path | None = None

    picture_file: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that will be written, apart from traces."""
        return tuple(path for path in self._by_ending.values() if path is not None)

    def check(self) -> None:
        """See that everything can be written, before the work. Raises OutputError."""
        for path in self._by_ending.values():
            if path is not None:
                check_file(path)
        if self.folder is not None:
            check_folder(self.folder)

    @property
    def _by_ending(self) -> Mapping[str, Path | None]:
        """The single files by the ending of the form that each gets."""
        return {
            ".json": self.json_file,
            ".xml": self.junit_file,
            ".md": self.markdown_file,
            ".svg": self.picture_file,
        }

    def _write_forms(self, forms: Mapping[str, str]) -> None:
        """Write each form into the file that was asked for, and under its name into the folder."""
        for name, text in forms.items():
            single = self._by_ending.get(Path(name).suffix)
            if single is not None:
                write_if_possible(single, text)
            if self.folder is not None:
                write_if_possible(self.folder / name, text)


class Outputs(_Files):
    """Where the certificate of an allocator goes, and its traces."""

    __slots__ = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that will be written, apart from traces."""
        names = (*_CERTIFICATE_FILES, "certificate.txt", ENTRIES_FILE)
        folder = self.folder or DEFAULT_FOLDER
        of_folder = [folder / name for name in names] if self.folder else [folder / ENTRIES_FILE]
        return (*super().paths, *of_folder)

    def write(self, certificate: Certificate) -> Mapping[str, str]:
        """Write all forms of a judged certificate; the trace file of each fingerprint.

        What cannot be written is named on standard error, and the others are written.
        """
        forms = {
            name: CERTIFICATE.written(certificate, form)
            for name, form in _CERTIFICATE_FILES.items()
        }
        if self.folder is None:
            self._write_forms(forms)
            return _keep_traces(certificate)
        files = write_findings(self.folder, (*certificate.findings, *certificate.hardening))
        _write_entries(self.folder, certificate)
        text = plain_text(certificate_document(certificate, files))
        self._write_forms({**forms, "certificate.txt": text})
        return files


class KernelOutputs(_Files):
    """Where the certificate of a kernel goes. It has a picture of its errors, and no traces."""

    __slots__ = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that will be written."""
        names = (*_KERNEL_FILES, "errors.svg", "report.txt")
        of_folder = [self.folder / name for name in names] if self.folder else []
        return (*super().paths, *of_folder)

    def write(self, certificate: KernelCertificate) -> Path | None:
        """Write all forms of a judged certificate; where its JSON is."""
        kept = self.json_file or (self.folder and self.folder / "report.json")
        where = None if kept is None else str(kept)
        forms = {
            name: KERNEL_CERTIFICATE.written(certificate, form)
            for name, form in _KERNEL_FILES.items()
        }
        forms["errors.svg"] = errors_picture(certificate.run)
        forms["report.txt"] = plain_text(kernel_document(certificate, where))
        self._write_forms(forms)
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
