"""The glossary: an entry for each name that a report can print, on pages that exist."""

import dataclasses
from pathlib import Path

import pytest

from poolproof.contract.depth import Depth
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity
from poolproof.invariants.catalogue import STATEMENTS
from poolproof.report.glossary import GLOSSARY, KINDS, meanings_of, nearest_names
from poolproof.report.manual import manual_section

DOCS = Path(__file__).resolve().parents[2] / "docs"


def names(kind):
    return [entry.name for entry in GLOSSARY if entry.kind == kind]


def test_every_name_of_a_report_has_an_entry():
    rows = {
        field.name
        for profile in (Profile, ManagerProfile, EngineProfile)
        for field in dataclasses.fields(profile)
    }
    assert set(names("row")) == rows - {"assumed"}
    assert names("invariant") == list(STATEMENTS)
    assert names("severity") == [severity.value for severity in Severity]
    assert names("level") == list(Level)
    assert names("depth") == list(Depth)
    assert {entry.kind for entry in GLOSSARY} == set(KINDS)


def test_every_invariant_says_what_usually_causes_it():
    assert all(entry.causes for entry in GLOSSARY if entry.kind == "invariant")


@pytest.mark.parametrize("place", sorted({entry.page for entry in GLOSSARY}))
def test_the_section_that_an_entry_names_can_be_shown(place):
    assert len(manual_section(place).splitlines()) > 1


def test_a_section_ends_where_the_next_begins():
    section = manual_section("invariants.md#i2")
    assert section.startswith("## I2\n")
    assert "## I3" not in section
    assert manual_section("invariants.md#nothing") is None
    assert manual_section("nothing.md") is None


def test_a_name_is_found_however_it_is_written():
    assert [entry.name for entry in meanings_of("weak-hashes")] == ["weak hashes"]
    assert [entry.kind for entry in meanings_of("Index")] == ["level", "row"]
    assert nearest_names("rulr") == ["ruler"]


def test_a_value_of_a_row_is_explained_by_itself():
    (entry,) = meanings_of("hits=sound")
    assert (entry.name, [value for value, _ in entry.values]) == ("hits", ["sound"])
    assert {entry.name for entry in meanings_of("sound")} == {"admission", "hits"}
    assert all(len(entry.values) == 1 for entry in meanings_of("sound"))


def test_of_a_value_that_a_row_lists_nowhere_the_whole_row_is_told():
    assert meanings_of("null_block=3") == meanings_of("null_block")
    assert meanings_of("ruler=3") == ()


def test_the_command_line_explains_a_name_and_lists_them_all(poolproof):
    said = poolproof("explain", "idx").output
    assert "usually   reusing a block without taking its hash out of the index" in said
    assert "docs/invariants.md#idx" in said
    assert "## IDX" in poolproof("explain", "IDX", "--more").output
    assert "weak hashes" in poolproof("explain").output


def test_a_finding_is_explained_with_its_steps(poolproof, samples, folder):
    path = folder / "f.jsonl"
    path.write_text("\n".join(samples.trace().lines()) + "\n")
    said = poolproof("explain", path).output
    assert "> 5  lookup(" in said
    assert "IDX  invariant" in said
    assert "wrong-data-of-another  severity" in said


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rulr", "there is nothing called 'rulr'; did you mean ruler?"),
        ("", "NAME is empty (is a variable unset?)"),
        ("f-00000000", "no trace f-00000000 in"),
    ],
)
def test_what_there_is_not_is_named_with_what_is_near(poolproof, name, says):
    done = poolproof("explain", name)
    assert done.exit_code == 2
    assert says in done.output
