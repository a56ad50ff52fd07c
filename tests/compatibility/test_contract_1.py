"""Targets of contract 1 go on working: classes and programs as 0.1.0 asked for them.

`0.1.0/simple_manager.py` is the example that 0.1.0 published, `0.1.0/pool_program.py` a program
that speaks the first version of the protocol and refuses every other. They are never changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import poolproof

OLD = Path(__file__).resolve().parent / "0.1.0"
PROGRAM = f"cmd:{sys.executable} {OLD / 'pool_program.py'}"


def invariants_of(certificate):
    return {found.violation.invariant for found in certificate.findings}


@pytest.mark.some(0)
@pytest.mark.parametrize("target", [f"{OLD / 'simple_manager.py'}:Manager", PROGRAM])
def test_what_held_under_contract_1_holds(target):
    certificate = poolproof.certify(target, depth="quick", workers=1)
    assert certificate.verdict is poolproof.Verdict.HOLDS, certificate.findings
    assert certificate.contract_version == 1
    assert certificate.canaries_caught


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("target", "invariant"),
    [(f"{OLD / 'leaking_manager.py'}:Manager", "I1"), (f"{PROGRAM} --stale", "IDX")],
)
def test_what_was_refused_under_contract_1_is_refused(target, invariant):
    certificate = poolproof.certify(target, depth="quick", workers=1)
    assert certificate.verdict is poolproof.Verdict.REFUSED
    assert invariant in invariants_of(certificate)


def test_the_old_program_is_asked_in_its_version_after_the_newer_ones():
    first = {"seq": 0, "do": "start", "protocol": 3}
    asked = subprocess.run(
        [sys.executable, OLD / "pool_program.py"],
        input=json.dumps(first) + "\n", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "speaks protocol 1" in json.loads(asked.stdout)["error"]
    target = poolproof.load_target(PROGRAM)
    assert target.level.value == "pool"
