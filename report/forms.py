"""The forms in which a report can be written, and what a kind of report brings for all of them.

Text, Markdown and web pages are three ways to show its document. JSON and JUnit are read by
programs, for which a document says too little: they are made from the data.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from poolproof.report.document import Document
from poolproof.report.html_form import html_page
from poolproof.report.junit_form import JunitSuite, junit
from poolproof.report.markdown_form import markdown
from poolproof.report.text_form import plain_text

__all__ = ["Form", "ReportKind", "document_text", "json_text"]

Subject = TypeVar("Subject")


class Form(enum.Enum):
    """A form by its name."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    HTML = "html"


def json_text(value: Mapping[str, Any], indent: int = 2) -> str:
    """A JSON object as the text of a file."""
    return json.dumps(value, indent=indent) + "\n"


def document_text(document: Document, form: Form) -> str:
    """A document in one of the forms that are made from it: text, Markdown or a web page."""
    return _RENDERERS[form](document)


_RENDERERS: Mapping[Form, Callable[[Document], str]] = {
    Form.TEXT: plain_text,
    Form.MARKDOWN: markdown,
    Form.HTML: html_page,
}


@dataclass(frozen=True, slots=True)
class ReportKind(Generic[Subject]):
    """A kind of report: its document and its data, from which every form follows.

    `name_of` says what a subject is about, in a few words; `suites_of` are its results as tests.
    """

    document_of: Callable[[Subject], Document]
    json_of: Callable[[Subject], str]
    name_of: Callable[[Subject], str]
    suites_of: Callable[[Subject], Sequence[JunitSuite]]

    def written(self, subject: Subject, form: Form) -> str:
        """The report as the text of a file."""
        if form is Form.JSON:
            return self.json_of(subject)
        if form is Form.JUNIT:
            return junit(self.name_of(subject), self.suites_of(subject))
        return document_text(self.document_of(subject), form)
