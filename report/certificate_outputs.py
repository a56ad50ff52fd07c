"""The files that a certification leaves behind, apart from what it prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from poolproof.certification.certificate import Certificate
from poolproof.certification.known_findings import ENTRIES_FILE, entries_for
from poolproof.certification.verdict import failing
from poolproof.report.finding_report import plain_text
from poolproof.report.junit_certificate import junit_certificate
from poolproof.report.markdown_certificate import markdown_certificate
from poolproof.report.output_files import (
    OutputError,
    check_file,
    check_folder,
    write_file,
    write_if_possible,
)
from poolproof.report.text_certificate import text_certificate
from poolproof.report.trace_files import DEFAULT_FOLDER, write_findings

__all__ = ["Outputs"]


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the certificate goes: single files, and a folder that gets every form."""

    json_file: Path | None = None
    junit_file: Path | None = None
    markdown_file: Path | None = None
    folder: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that will be written, apart from traces."""
        single = (self.json_file, self.junit_file, self.markdown_file)
        names = ("certificate.json", "certificate.md", "junit.xml", "certificate.txt", ENTRIES_FILE)
        folder = self.folder or DEFAULT_FOLDER
        of_folder = [folder / name for name in names] if self.folder else [folder / ENTRIES_FILE]
        return (*(path for path in single if path is not None), *of_folder)

    def check(self) -> None:
        """See that everything can be written, before the work. Raises OutputError."""
        for path in (self.json_file, self.junit_file, self.markdown_file):
            if path is not None:
                check_file(path)
        if self.folder is not None:
            check_folder(self.folder)

    def write(self, certificate: Certificate) -> Mapping[str, str]:
        """Write all forms of a judged certificate; the trace file of each fingerprint.

        What cannot be written is named on standard error, and the others are written.
        """
        if self.json_file is not None:
            write_if_possible(self.json_file, _json(certificate))
        if self.junit_file is not None:
            write_if_possible(self.junit_file, junit_certificate(certificate))
        if self.markdown_file is not None:
            write_if_possible(self.markdown_file, markdown_certificate(certificate))
        if self.folder is None:
            return _keep_traces(certificate)
        files = write_findings(self.folder, (*certificate.findings, *certificate.hardening))
        _write_entries(self.folder, certificate)
        write_if_possible(self.folder / "certificate.json", _json(certificate))
        write_if_possible(self.folder / "certificate.md", markdown_certificate(certificate))
        write_if_possible(self.folder / "junit.xml", junit_certificate(certificate))
        text = plain_text(text_certificate(certificate, files))
        write_if_possible(self.folder / "certificate.txt", text)
        return files


def _keep_traces(certificate: Certificate) -> Mapping[str, str]:
    """Without --report, traces are kept in the working folder, where `show f-...` finds them.

    Nobody asked for these files, so it is no error when they cannot be written.
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
    """What accepts the findings that fail the run, to be copied into a known file."""
    fails = failing(certificate)
    if fails:
        write_if_possible(folder / ENTRIES_FILE, entries_for(fails))


def _json(certificate: Certificate) -> str:
    return json.dumps(certificate.to_json(), indent=2) + "\n"
