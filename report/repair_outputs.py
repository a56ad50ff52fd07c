"""The files that judging a patch leaves behind: the report, and the traces of what was found."""

from __future__ import annotations

from collections.abc import Mapping

import click

from poolproof.certification.repair import RepairReport
from poolproof.report.forms import Form
from poolproof.report.output_files import OutputError, check_folder, write_file
from poolproof.report.repair_document import REPAIR, repair_document
from poolproof.report.report_files import ReportFiles, form_names
from poolproof.report.text_form import plain_text
from poolproof.report.trace_files import DEFAULT_FOLDER, write_findings

__all__ = ["RepairOutputs"]

_FILES = form_names("repair")


class RepairOutputs(ReportFiles):
    """Where the report on a patch goes, and its traces."""

    __slots__ = ()

    def write(self, report: RepairReport) -> Mapping[str, str]:
        """Write all forms; the trace file of each fingerprint.

        What cannot be written is named on standard error, and the others are written.
        """
        files = self._keep_traces(report)
        forms = {
            name: REPAIR.written(report, form)
            for name, form in _FILES.items()
            if form is not Form.TEXT
        }
        # The text names the files of the traces.
        forms["repair.txt"] = plain_text(repair_document(report, files))
        self.put(forms)
        return files

    def _keep_traces(self, report: RepairReport) -> Mapping[str, str]:
        """Without --report they are kept where `show f-...` finds them, if that can be written."""
        findings = [judged.finding for judged in report.findings]
        if self.folder is not None:
            return write_findings(self.folder, findings)
        if not findings:
            return {}
        try:
            check_folder(DEFAULT_FOLDER)
            write_file(DEFAULT_FOLDER / ".gitignore", "*\n")
            return write_findings(DEFAULT_FOLDER, findings)
        except OutputError as error:
            click.echo(f"poolproof: the traces are not kept: {error}", err=True)
            return {}
