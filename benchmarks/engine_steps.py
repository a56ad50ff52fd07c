"""How many steps the real vLLM pool takes at `standard`, what was found, and how long it took.

Runs `certify vllm --depth standard --hardening` and writes what the certificate says. Needs an
environment with a real vLLM (`make vllm`); prints one line and ends with status 0 where there is
none.

Usage: .venv-vllm/bin/python benchmarks/engine_steps.py [--depth DEPTH] [--record]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import Any

from record import add_destination, write_record

from poolproof.certification.certificate import Certificate
from poolproof.certification.certify import certify
from poolproof.certification.depths import BUDGETS
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import PlainProgress
from poolproof.certification.verdict import Rules, judge
from poolproof.targets.load import load_target


def summary_of(certificate: Certificate) -> dict[str, Any]:
    """What the documentation quotes."""
    assert certificate.verdict is not None
    return {
        "target": f"{certificate.target} {certificate.target_version}",
        "level": certificate.depth,
        "verdict": certificate.verdict.value,
        "steps": sum(stage.steps for stage in certificate.stages),
        "pool_steps": sum(s.steps for s in certificate.stages if s.level == "pool"),
        "seconds": round(certificate.seconds, 1),
        "workers": certificate.workers,
        "findings": [finding.violation.sentence for finding in certificate.findings],
        "hardening": [finding.violation.sentence for finding in certificate.hardening],
        "never_called": list(certificate.never_called),
        "stages": [stage.to_json() for stage in certificate.stages],
    }


def main() -> int:
    """Certify and write; the exit status is the certificate's."""
    parser = argparse.ArgumentParser(description="Certify the installed vLLM and count.")
    parser.add_argument("--depth", choices=sorted(BUDGETS), default="standard")
    add_destination(parser, "engine_steps")
    asked = parser.parse_args()
    if importlib.util.find_spec("vllm") is None:
        print(
            "no vLLM here: run `make vllm`, then .venv-vllm/bin/python benchmarks/engine_steps.py"
        )
        return 0
    options = CertifyOptions(
        depth=asked.depth, workers=len(os.sched_getaffinity(0)), hardening=True
    )
    found = certify(lambda: load_target("vllm"), options, PlainProgress(sys.stderr))
    certificate = judge(found, Rules())
    summary = summary_of(certificate)
    found_text = f"{len(summary['findings'])} findings, {len(summary['hardening'])} of hardening"
    steps = f"{summary['pool_steps']:,} pool steps in {summary['seconds']} s"
    print(f"{summary['target']}: {summary['verdict']}, {steps}, {found_text}")
    if not write_record(asked.json, summary, indent=1):
        return 2
    assert certificate.verdict is not None
    return certificate.verdict.exit_status


if __name__ == "__main__":
    sys.exit(main())
