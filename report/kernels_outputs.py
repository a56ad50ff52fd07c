"""The files that the certification of a kernel leaves behind, apart from what it prints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from poolproof.kernels.report import KernelReport
from poolproof.report.finding_report import plain_text
from poolproof.report.kernels_junit import kernels_junit
from poolproof.report.kernels_picture import errors_picture
from poolproof.report.kernels_text import kernels_text, kernels_verdict_line
from poolproof.report.markdown_certificate import markdown_environment
from poolproof.report.output_files import check_file, check_folder, write_if_possible

__all__ = ["KernelOutputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOutputs:
    """Where the report goes: single files, and a folder that gets every form."""

    json_file: Path | None = None
    junit_file: Path | None = None
    markdown_file: Path | None = None
    picture_file: Path | None = None
    folder: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that will be written."""
        single = (self.json_file, self.junit_file, self.markdown_file, self.picture_file)
        names = ("report.json", "junit.xml", "report.md", "errors.svg", "report.txt")
        of_folder = () if self.folder is None else tuple(self.folder / name for name in names)
        return (*(path for path in single if path is not None), *of_folder)

    def check(self) -> None:
        """See that everything can be written, before the work. Raises OutputError."""
        for path in (self.json_file, self.junit_file, self.markdown_file, self.picture_file):
            if path is not None:
                check_file(path)
        if self.folder is not None:
            check_folder(self.folder)

    def write(self, report: KernelReport) -> Path | None:
        """Write all forms of a judged report; where its JSON is."""
        forms = {
            "report.json": json.dumps(report.to_json(), indent=1) + "\n",
            "junit.xml": kernels_junit(report),
            "report.md": _markdown(report),
            "errors.svg": errors_picture(report),
        }
        asked = (self.json_file, self.junit_file, self.markdown_file, self.picture_file)
        for path, text in zip(asked, forms.values(), strict=True):
            if path is not None:
                write_if_possible(path, text)
        if self.folder is None:
            return self.json_file
        for name, text in forms.items():
            write_if_possible(self.folder / name, text)
        kept = self.json_file or self.folder / "report.json"
        write_if_possible(self.folder / "report.txt", plain_text(kernels_text(report, str(kept))))
        return kept


def _markdown(report: KernelReport) -> str:
    template = markdown_environment().get_template("kernels.md")
    return template.render(report=report, verdict_line=kernels_verdict_line(report))
