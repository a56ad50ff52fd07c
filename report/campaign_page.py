"""A campaign as one web page: no script, no network, safe to attach to an issue."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from poolproof import __version__
from poolproof.certification.campaign_coverage import coverage_words, missing_words
from poolproof.contract.outside import printable
from poolproof.contract.violation import Severity
from poolproof.fuzz.status import CampaignStatus
from poolproof.report.campaign_charts import charts_of
from poolproof.report.campaign_record import CampaignRecord
from poolproof.report.campaign_words import (
    duration_words,
    ending_words,
    forms_words,
    mean_rate,
    reached_words,
    verdict_words,
    waiting_words,
)
from poolproof.report.svg_chart import STYLE, svg_of
from poolproof.report.wording import in_a_template, severity_words

__all__ = ["campaign_page"]


def campaign_page(record: CampaignRecord) -> str:
    """The page; everything that comes from the campaign is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=in_a_template,
    )
    page = environment.get_template("campaign.html").render(
        settings=record.settings,
        target=printable(record.settings.target),
        verdict=_verdict(record),
        rows=(_rows(record.status) if record.status else []) + _damage_rows(record),
        waiting=[(line, severity_words(Severity(line.severity))) for line in record.waiting],
        waiting_words=waiting_words,
        findings=[(line, severity_words(Severity(line.severity))) for line in record.findings],
        charts=[(chart, svg_of(chart)) for chart in charts_of(record)],
        style=STYLE,
        sentence_of=lambda line: printable(line.sentence),
        duration_words=duration_words,
        forms_words=forms_words,
        coverage=record.coverage,
        coverage_words=coverage_words,
        missing_words=missing_words,
        version=__version__,
    )
    return page + "\n"


def _verdict(record: CampaignRecord) -> str:
    words = "nothing has been driven yet" if record.status is None else verdict_words(record.status)
    return words[:1].upper() + words[1:]


def _damage_rows(record: CampaignRecord) -> list[tuple[str, str]]:
    return [("damaged", printable(sentence)) for sentence in record.damage]


def _rows(status: CampaignStatus) -> list[tuple[str, str]]:
    drove = (
        f"{status.num_steps:,} steps in {status.num_runs:,} runs, {duration_words(status.seconds)}"
    )
    rows = [
        ("scope", f"{status.level} level, {status.scope}"),
        ("reached", reached_words(status)),
        ("drove", f"{drove}, {mean_rate(status):,.0f} steps a second"),
        ("last new", f"{status.steps_since_new:,} steps before the end"),
        ("corpus", f"{status.corpus_size:,} tapes"),
    ]
    if status.stability is not None:
        stable = f"{100 * status.stability:.1f} % of repeated tapes visited the same states"
        rows.append(("stability", stable))
    rows.append(
        ("workers", f"{status.num_workers:,} at work, {status.num_workers_lost:,} lost over all")
    )
    if status.facts_missing:
        rows.append(("missing", "; ".join(status.facts_missing)))
    rows += [("sessions", ", ".join(status.seeds)), ("state", ending_words(status))]
    return rows
