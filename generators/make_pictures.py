"""Draw the pictures of the manual: a certificate, a finding, a campaign, survival of planted bugs.

The first two and `campaign` are what a terminal shows, `discovery` is a chart of that campaign's
page; the last is drawn from benchmarks/results/survival.json. `kernels` needs torch and triton.

Usage: python generators/make_pictures.py                 write docs/pictures/*.svg
       python generators/make_pictures.py certificates    the certificate and the finding alone
       python generators/make_pictures.py survival        that one alone
       python generators/make_pictures.py campaign        those of the campaign alone
       python generators/make_pictures.py kernels         that of the kernels alone
       ... --check    write nothing, exit with 1 if a picture says something else now
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from collections.abc import Callable
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

Pictures = dict[str, str]  # the name of each picture, and its SVG

# What differs from one run or machine to the next, in a terminal and in the picture of a kernel,
# whose batches each release of Hypothesis draws anew.
_MEASURED = re.compile(
    r"\(\d+ s\)|[\d,]+ steps/s|(?<=CPython )[\d.]+|\d+ workers?|"
    r"[\d,]+(?= batches)|(?<=worst )[\d.]+|(?<=triton )[\d.+\w]+"
)
# Of a campaign its words are compared: how far it comes in a second is the machine's.
_OF_A_CAMPAIGN = frozenset({"campaign", "discovery"})


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


def terminal(name: str, title: str, content: RenderableType) -> str:
    """What a terminal shows, in whatever monospaced font its reader has."""
    console = Console(width=COLUMNS, record=True, file=StringIO(), force_terminal=True)
    console.print(content, highlight=False)
    svg = console.export_svg(title=title, unique_id=name)
    # rich's template fetches its font from the network.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def survival() -> Pictures:
    """Draw the survival curves, where they were measured."""
    result = read("survival")
    return {} if result is None else {"survival": survival_picture(result)}


def campaign() -> Pictures:
    """Draw what a campaign shows, and its discovery, from one campaign against planted bugs."""
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
    panel = campaign_panel(record.status, None, console)
    return {
        "campaign": terminal("campaign", f"poolproof fuzz {target}", panel),
        "discovery": svg_of(discovery_over_time(record), alone=True) + "\n",
    }


def certificates() -> Pictures:
    """Draw the certificate of a correct pool, and the finding of one that is not."""
    correct = "examples/simple_pool.py:Pool"
    command = f"poolproof certify {correct} --depth quick"
    certificate = laid_out(*certificate_document(certificate_of(correct)).blocks)
    finding = certificate_of("examples/stale_index.py:Pool").findings[0]
    shown = laid_out(*finding_report(finding).blocks)
    return {
        "certificate": terminal("certificate", command, certificate),
        "finding": terminal("finding", f"poolproof show {finding.fingerprint}", shown),
    }


def kernels(depth: str = "standard") -> Pictures:
    """Draw the errors of our kernels, and print the certificate: it has to hold.

    What the picture says beside its figures is the same at every depth.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "errors.svg"
        command = [sys.executable, "-m", "poolproof", "kernels", "paged", "--depth", depth]
        done = subprocess.run([*command, "--picture", str(file)], check=False, cwd=ROOT)
        if done.returncode:
            sys.exit("make_pictures.py: the kernels do not hold; nothing was drawn")
        return {"kernel-errors": file.read_text(encoding="utf-8")}


def words_of(name: str, svg: str) -> list[str]:
    """What a picture says, without what a machine measured; all of it where nothing was."""
    if name == "survival":
        return svg.splitlines()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg)
    text = html.unescape(" ".join(texts)).replace("\xa0", " ")
    if name in _OF_A_CAMPAIGN:
        words = re.findall(r"[A-Za-z]{2,}", text.partition("the last")[0])
        return [word for word in words if word not in {"min", "seconds", "minutes"}]
    return _MEASURED.sub("N", text).split()


def compare(drawn: Pictures) -> int:
    """Name the pictures that say something else than those of the manual; the exit status."""
    status = 0
    for name, svg in drawn.items():
        file = PICTURES / f"{name}.svg"
        there = words_of(name, file.read_text(encoding="utf-8")) if file.is_file() else []
        now = words_of(name, svg)
        if there != now:
            status = 1
            changed = [word for word in now if word not in there] or now
            print(f"docs/pictures/{name}.svg is out of date: now it says {' '.join(changed[:12])}")
    return status


ALONE: dict[str, Callable[[], Pictures]] = {
    "certificates": certificates,
    "survival": survival,
    "campaign": campaign,
    "kernels": kernels,
}


def main() -> int:
    """Draw or compare all but those of kernels, or the one that is named."""
    is_check = "--check" in sys.argv[1:]
    names = [argument for argument in sys.argv[1:] if argument != "--check"]
    for name in names:
        if name not in ALONE:
            sys.exit(f"make_pictures.py: {name} is none of {', '.join(ALONE)}")
    drawn: Pictures = {}
    for name in names or ("certificates", "campaign", "survival"):
        drawn |= kernels("quick") if name == "kernels" and is_check else ALONE[name]()
    if is_check:
        return compare(drawn)
    PICTURES.mkdir(exist_ok=True)
    for name, svg in drawn.items():
        write_atomically(PICTURES / f"{name}.svg", svg)
        print(f"docs/pictures/{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
