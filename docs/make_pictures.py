"""Draw the pictures of the manual: a certificate and a finding, as a terminal shows them.

Usage: python docs/make_pictures.py       write docs/pictures/*.svg
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

from rich.console import Console, RenderableType

from poolproof.certificate import Certificate
from poolproof.contract.trace import write_atomically
from poolproof.finding_report import finding_report
from poolproof.text_certificate import text_certificate

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 100


def certificate_of(target: str) -> Certificate:
    """What the command line says of an example, without the names of this machine."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "certificate.json"
        command = [sys.executable, "-m", "poolproof", "certify", target, "--level", "quick"]
        subprocess.run(  # noqa: S603 -- our own command, on an example of ours
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


def main() -> None:
    """Draw both."""
    PICTURES.mkdir(exist_ok=True)
    correct = "examples/simple_pool.py:Pool"
    command = f"poolproof certify {correct} --level quick"
    draw("certificate", command, text_certificate(certificate_of(correct)))
    finding = certificate_of("examples/stale_index.py:Pool").findings[0]
    draw("finding", f"poolproof show {finding.fingerprint}", finding_report(finding))


if __name__ == "__main__":
    main()
