"""`poolproof symbolic` as its users see it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

HAS_BOTH = all(importlib.util.find_spec(name) is not None for name in ("z3", "crosshair"))
needs_crosshair = pytest.mark.skipif(not HAS_BOTH, reason="needs crosshair-tool (make proof)")


@needs_crosshair
def test_everything_is_confirmed(poolproof):
    result = poolproof("symbolic", "--json", "symbolic.json", "--timeout-s", "60")
    assert result.exit_code == 0, result.output
    assert "contracts        20 of 20 confirmed over all paths" in result.stdout
    assert "wrong versions   14 of 14 refuted" in result.stdout
    value = json.loads(Path("symbolic.json").read_text())
    assert {row["verdict"] for row in value["contracts"]} == {"confirmed"}


@needs_crosshair
def test_what_is_not_confirmed_is_named_with_what_crosshair_said(poolproof, monkeypatch):
    from poolproof.exploration.symbolic.symbolic_run import ContractOutcome, SymbolicRun

    def run_symbolic(timeout_s, names):
        broken = ContractOutcome("touching", "refuted", 1, "false when count = 0", 0.1)
        missed = ContractOutcome("freeing", "confirmed", 1, "Confirmed over all paths.", 0.1)
        return SymbolicRun((broken,), (missed,))

    monkeypatch.setattr("poolproof.exploration.symbolic.symbolic_run.run_symbolic", run_symbolic)
    result = poolproof("symbolic", "touching")
    assert result.exit_code == 1
    assert "touching: false when count = 0" in result.stdout
    assert "a wrong version got through freeing" in result.stdout


@needs_crosshair
def test_an_unknown_contract_is_named(poolproof):
    result = poolproof("symbolic", "nope")
    assert result.exit_code == 2
    assert "no contract 'nope'; known are key_reads_back, " in result.stderr


def test_a_missing_crosshair_says_what_to_install(poolproof, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    result = poolproof("symbolic")
    assert result.exit_code == 2
    assert "install it with: pip install 'poolproof[proof,symbolic]'" in result.stderr
