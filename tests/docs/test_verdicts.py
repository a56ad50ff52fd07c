"""The recorded verdicts: the table of systems, the findings, and the traces that show them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from poolproof.contract.target import TargetError
from poolproof.contract.trace import read_trace
from poolproof.harness.replay import replay
from poolproof.targets.catalogue import PUBLISHED_ENGINES
from poolproof.targets.load import load_target
from poolproof.targets.nano_clones import NANO_CLONES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = tomllib.loads((ROOT / "benchmarks" / "verdict_systems.toml").read_text("utf-8"))["system"]
RECORDED = json.loads((ROOT / "benchmarks" / "results" / "verdicts.json").read_text("utf-8"))
ROWS = RECORDED["systems"]
FINDINGS = [(name, finding) for name, row in ROWS.items() for finding in row["findings"]]
IDS = [Path(finding["trace"]).stem for _, finding in FINDINGS]


def test_systems_have_names_of_their_own_and_every_key_is_known():
    names = [system["id"] for system in SYSTEMS]
    assert len(set(names)) == len(names)
    known = {"id", "system", "document", "target", "public", "level", "modules", "remark"}
    for system in SYSTEMS:
        assert set(system) <= {*known, "finding"}, system["id"]
        assert {"system", "document", "target", "remark"} <= set(system), system["id"]
        for finding in system.get("finding", ()):
            keys = {"name", "invariants", "contains", "threads", "upstream", "explanation"}
            assert set(finding) - {"layouts"} == keys, system["id"]
            # An empty part would explain whatever breaks the same invariant.
            parts = finding["contains"]
            assert all([parts] if isinstance(parts, str) else parts), system["id"]


def test_what_is_recorded_is_in_the_table_and_explained():
    assert set(ROWS) <= {system["id"] for system in SYSTEMS}
    assert [name for name, row in ROWS.items() if row["unexplained"]] == []
    assert [name for name, row in ROWS.items() if row["verdict"] == "inconclusive"] == []


TO_BE_RECORDED: set[str] = set()
"""Rows of before a change of their adapter; each run of one takes long."""

UPSTREAM = re.compile(r"docs/findings/upstream/([\w.-]*\w)")


def test_each_finding_has_a_folder_for_upstream_that_is_there():
    named = {
        name
        for system in SYSTEMS
        for entry in system.get("finding", ())
        for name in entry["upstream"] or [f"{system['id']}: none"]
    }
    named |= set(
        UPSTREAM.findall((ROOT / "benchmarks" / "verdict_systems.toml").read_text("utf-8"))
    )
    folders = {place.name for place in (ROOT / "docs" / "findings" / "upstream").iterdir()}
    assert sorted(named - folders) == []


@pytest.mark.parametrize("system", SYSTEMS, ids=[system["id"] for system in SYSTEMS])
def test_what_is_recorded_is_what_the_table_says(system):
    """Who changes a remark or the name of a finding records the row again."""
    if system["id"] not in ROWS or system["id"] in TO_BE_RECORDED:
        pytest.skip("to be recorded")
    row = ROWS[system["id"]]
    assert row["target"] == system.get("public", system["target"])
    assert [row[key] for key in ("system", "document", "remark")] == [
        system[key] for key in ("system", "document", "remark")
    ]
    told = {entry["name"]: entry for entry in system.get("finding", ())}
    for finding in row["findings"]:
        assert finding["name"] in told
        entry = told[finding["name"]]
        seen = finding.get("seen", {finding["invariant"]: finding["sentence"]})
        assert set(seen) <= set(entry["invariants"])
        parts = entry["contains"]
        parts = [parts] if isinstance(parts, str) else parts
        assert [said for said in seen.values() if not any(part in said for part in parts)] == []


def test_nothing_is_called_to_be_recorded_that_is():
    told = {system["id"]: system for system in SYSTEMS}
    assert [name for name in TO_BE_RECORDED if ROWS[name]["system"] == told[name]["system"]] == []


@pytest.mark.parametrize("system", SYSTEMS, ids=[system["id"] for system in SYSTEMS])
def test_no_explanation_covers_what_was_not_found(system):
    """A wider one would cover a false accusation as well."""
    told = {entry["name"]: entry for entry in system.get("finding", ())}
    for finding in ROWS.get(system["id"], {}).get("findings", ()):
        if "seen" in finding:  # rows that were recorded before this was
            assert set(told[finding["name"]]["invariants"]) == set(finding["seen"])


def test_each_clone_has_a_row_that_the_command_fetches():
    """The generations of nano-vLLM without a row are for the tests of its adapter."""
    fetched = [system["target"].partition("[")[0].rpartition("/")[2] for system in SYSTEMS
               if "build/engines/" in system["target"]]  # fmt: skip
    assert sorted(set(fetched) - set(NANO_CLONES)) == []
    assert sorted(set(NANO_CLONES) - set(fetched)) == ["nano-vllm-8d63a98", "nano-vllm-cde3fc2"]


def test_what_is_not_driven_says_why_and_has_no_figures():
    for row in ROWS.values():
        assert (row["verdict"] == "not driven") == bool(row.get("why"))
        assert bool(row["stages"]) == (row["verdict"] != "not driven")


def test_a_system_is_refused_if_and_only_if_something_was_found():
    for name, row in ROWS.items():
        assert (row["verdict"] == "refused") == bool(row["findings"]), name


@pytest.mark.parametrize(("name", "finding"), FINDINGS, ids=IDS)
def test_a_finding_has_a_short_trace_that_shows_it(name, finding):
    trace = read_trace(ROOT / finding["trace"])
    assert trace.violation.sentence == finding["sentence"]
    assert len(trace.commands) == finding["num_commands"]
    assert trace.target == ROWS[name]["target"]


@pytest.mark.parametrize("name", ["nano-vllm-df99418", "nano-vllm-f64d821", "vllm-v0"])
def test_the_known_bugs_take_at_most_eight_commands(name):
    lengths = [finding["num_commands"] for finding in ROWS[name]["findings"]]
    assert lengths
    assert max(lengths) <= 8


@pytest.mark.vllm
@pytest.mark.parametrize(("name", "finding"), FINDINGS, ids=IDS)
def test_a_recorded_trace_still_fails_on_the_real_engine(name, finding):
    del name
    trace = read_trace(ROOT / finding["trace"])
    if "path/to" in trace.target:
        pytest.skip(f"{trace.target} names a checkout")
    engine, at, _ = trace.target.partition("@")
    try:
        target = load_target(trace.target)
    except TargetError as error:
        # `make engines` fetches few: whoever wants the others asks for them by name.
        if not at and engine not in PUBLISHED_ENGINES and "build/engines/" not in engine:
            raise
        pytest.skip(str(error))
    layout = target.layout(str(trace.options["layout"]))
    found = replay(trace, layout.make).violation
    assert (found.invariant, found.severity) == (
        trace.violation.invariant,
        trace.violation.severity,
    )


def run(*arguments, **environment):
    script = str(ROOT / "benchmarks" / "verdicts.py")
    return subprocess.run(
        [sys.executable, script, *arguments],
        capture_output=True, text=True, check=False, env=environment or None,
    )  # fmt: skip


def test_an_unknown_system_is_named_beside_the_known_ones():
    done = run("vllm-v9")
    assert done.returncode == 2
    assert "no system vllm-v9; known are impl, " in done.stderr


def test_a_system_that_is_not_here_keeps_its_row(tmp_path):
    record = tmp_path / "verdicts.json"
    record.write_text(json.dumps({"systems": RECORDED["systems"]}))
    before = record.read_bytes()
    done = run("gllm", "--json", str(record), PATH="", POOLPROOF_ENGINES=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "gllm: not here, its row stays: " in done.stdout
    assert record.read_bytes() == before
