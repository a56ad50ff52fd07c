"""The files that a report goes to: one for a form, or a folder that gets every form.

Which files there are is known before the work, so that all of them can be tried then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from poolproof.report.forms import Form, ReportKind
from poolproof.report.output_files import check_file, check_folder, write_if_possible

__all__ = ["ReportFiles", "form_names"]

Subject = TypeVar("Subject")


def form_names(stem: str, junit: str = "junit.xml") -> Mapping[str, Form]:
    """The names that the forms of a report have in a folder."""
    return {
        f"{stem}.json": Form.JSON,
        f"{stem}.md": Form.MARKDOWN,
        f"{stem}.html": Form.HTML,
        f"{stem}.txt": Form.TEXT,
        junit: Form.JUNIT,
    }


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """Where a report goes: single files, and a folder that gets every form."""

    json_file: Path | None = None
    junit_file: Path | None = None
    markdown_file: Path | None = None
    folder: Path | None = None
    html_file: Path | None = None
    picture_file: Path | None = None
    sarif_file: Path | None = None

    @property
    def singles(self) -> tuple[Path, ...]:
        """The single files that will be written."""
        return tuple(path for path in self._by_ending.values() if path is not None)

    def check(self) -> None:
        """See that everything can be written, before the work. Raises OutputError."""
        for path in self.singles:
            check_file(path)
        if self.folder is not None:
            check_folder(self.folder)

    def write_report(
        self, kind: ReportKind[Subject], subject: Subject, names: Mapping[str, Form]
    ) -> None:
        """Write a report in every form that was asked for; `names` are those in the folder.

        What cannot be written is named on standard error, and the others are written.
        """
        singles = self._by_ending
        self.put(
            {
                name: kind.written(subject, form)
                for name, form in names.items()
                if self.folder is not None or singles.get(Path(name).suffix) is not None
            }
        )

    def put(self, texts: Mapping[str, str]) -> None:
        """Write texts, by the names that they have in the folder; the ending tells the form."""
        for name, text in texts.items():
            single = self._by_ending.get(Path(name).suffix)
            if single is not None:
                write_if_possible(single, text)
            if self.folder is not None:
                write_if_possible(self.folder / name, text)

    @property
    def _by_ending(self) -> Mapping[str, Path | None]:
        """The single files by the ending of the form that each gets."""
        return {
            ".json": self.json_file,
            ".xml": self.junit_file,
            ".md": self.markdown_file,
            ".html": self.html_file,
            ".svg": self.picture_file,
            ".sarif": self.sarif_file,
        }
