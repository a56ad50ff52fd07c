"""Draw the pictures of the manual: a certificate, a finding, a campaign, survival of planted bugs.

The first two and `campaign` are what a terminal shows, `discovery` is a chart of that campaign's
page; the last is drawn from benchmarks/results/survival.json.

Usage: python generators/make_pictures.py                 write docs/pictures/*.svg
       python generators/make_pictures.py certificates    the certificate and the finding alone
       python generators/make_pictures.py survival        that one alone
       python generators/make_pictures.py campaign        those of the campaign alone
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import read
from rich.console import Console, RenderableType
from survival_picture import survival_picture

from poolproof.certification.certificate import Certificate
from poolproof.contract.trace import write_atomically
from poolproof.report.campaign_charts import discovery_over_time
from poolproof.report.campaign_display import campaign_panel
from poolproof.report.campaign_record import read_record
from poolproof.report.certificate_document import certificate_document
from poolproof.report.finding_report import finding_report
from poolproof.report.svg_chart import svg_of
from poolproof.report.text_form import laid_out

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 100


def certificate_of(target: str) -> Certificate:
    """What the command line says of an example, without the names of this machine."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "certificate.json"
        command = [sys.executable, "-m", "poolproof", "certify", target, "--depth", "quick"]
        subprocess.run(
            [*command, "--report", folder, "--json", str(file)],
            check=False,  # the status says what was found
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        certificate = Certificate.from_json(json.loads(file.read_text(encoding="utf-8")))
    return replace(
        certificate,
        source=certificate.source.replace(f"{ROOT}/", ""),
        platform=certificate.platform.partition("-")[0],
    )


def draw(name: str, title: str, content: RenderableType) -> None:
    """Write one picture, in whatever monospaced font its reader has."""
    console = Console(width=COLUMNS, record=True, file=StringIO(), force_terminal=True)
    console.print(content, highlight=False)
    svg = console.export_svg(title=title, unique_id=name)
    # rich's template fetches its font from the network.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    write_atomically(PICTURES / f"{name}.svg", svg)
    print(f"docs/pictures/{name}.svg")


def draw_survival() -> None:
    """Write the survival curves, where they were measured."""
    result = read("survival")
    if result is not None:
        write_atomically(PICTURES / "survival.svg", survival_picture(result))
        print("docs/pictures/survival.svg")


def draw_campaign() -> None:
    """Write what a campaign shows, and its discovery, from one campaign against planted bugs."""
    target = "tests/fuzz/planted.py:TouchesTwice"
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "poolproof", "fuzz", target, "--folder", folder, "--quiet"]
        subprocess.run(
            [*command, "--steps", "250000", "--workers", "1"],
            check=False,  # the status says what was found
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        record = read_record(Path(folder))
    assert record.status is not None
    console = Console(width=COLUMNS, height=30, file=StringIO(), force_terminal=True)
    draw("campaign", f"poolproof fuzz {target}", campaign_panel(record.status, None, console))
    chart = svg_of(discovery_over_time(record), alone=True)
    write_atomically(PICTURES / "discovery.svg", chart + "\n")
    print("docs/pictures/discovery.svg")


def draw_certificates() -> None:
    """Write the certificate of a correct pool, and the finding of one that is not."""
    correct = "examples/simple_pool.py:Pool"
    command = f"poolproof certify {correct} --depth quick"
    draw("certificate", command, laid_out(*certificate_document(certificate_of(correct)).blocks))
    finding = certificate_of("examples/stale_index.py:Pool").findings[0]
    draw(
        "finding",
        f"poolproof show {finding.fingerprint}",
        laid_out(*finding_report(finding).blocks),
    )


ALONE = {"certificates": draw_certificates, "survival": draw_survival, "campaign": draw_campaign}


def main() -> None:
    """Draw all, or the one that is named."""
    if len(sys.argv) > 1:
        if sys.argv[1] not in ALONE:
            sys.exit(f"make_pictures.py: {sys.argv[1]} is none of {', '.join(ALONE)}")
        ALONE[sys.argv[1]]()
        return
    PICTURES.mkdir(exist_ok=True)
    draw_certificates()
    draw_campaign()
    draw_survival()


if __name__ == "__main__":
    main()
