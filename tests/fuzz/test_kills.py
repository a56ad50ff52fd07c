"""A short form of benchmarks/campaign_kills.py."""

import importlib.util
import sys
from pathlib import Path

import pytest

from poolproof.harness.isolation import Isolation

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "campaign_kills.py"


@pytest.mark.deep
@pytest.mark.skipif(not Isolation.is_available, reason="needs fork()")
def test_ten_kills_lose_nothing_and_nothing_is_said_twice(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec = importlib.util.spec_from_file_location("campaign_kills", SCRIPT)
    kills = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "campaign_kills", kills)
    spec.loader.exec_module(kills)
    kills.LONGEST_S = 1.0
    outcome = kills.kill(10, seed=1)
    assert outcome.kills == 10
    assert outcome.is_whole, outcome
