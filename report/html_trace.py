"""A trace as one web page: no script, no network, safe to attach to an issue."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from poolproof import __version__
from poolproof.contract.trace import Trace
from poolproof.report.finding_report import drawing_of
from poolproof.report.wording import in_a_template, set_up_of, severity_words
from poolproof.targets.target_spec import profile_words

__all__ = ["html_trace"]


def html_trace(trace: Trace) -> str:
    """The page; everything that comes from the trace is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=in_a_template,
    )
    drawing = drawing_of(trace)
    page = environment.get_template("trace.html").render(
        trace=trace,
        violation=trace.violation,
        severity=severity_words(trace.violation.severity) if trace.violation else "",
        set_up=set_up_of(trace),
        profile=profile_words(trace.profile, tuple(trace.profile.to_json())),
        drawing=drawing,
        version=__version__,
    )
    return page + "\n"
