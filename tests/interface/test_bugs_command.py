"""`poolproof bugs`: the matrix in all its forms, resuming, exit statuses, bad arguments."""

# Fixtures come by name; the types of tests are not checked.
# mypy: ignore-errors

import json

import pytest

from poolproof.cli.bugs_command import _chosen_rows
from poolproof.kill_matrix.subject import subjects

QUICK = ("--only", "Q3,D13,BitmapPool", "--detector", "unit,plain,I1,EVT", "--seeds", "1")


@pytest.fixture(scope="module", autouse=True)
def same_code():
    """The code counts as unchanged, also while somebody edits it beside a run of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("poolproof.kill_matrix.building.digest_of_code", lambda: "c0de")
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A tiny matrix: what was printed, and the files."""
    from click.testing import CliRunner

    from poolproof.cli.command_line import main

    folder = tmp_path_factory.mktemp("matrix")
    names = ("matrix.json", "matrix.html", "matrix.md", "matrix.xml", "searches.jsonl")
    files = {name: folder / name for name in names}
    arguments = ["bugs", *QUICK, "--json", files["matrix.json"], "--html", files["matrix.html"]]
    arguments += ["--md", files["matrix.md"], "--junit", files["matrix.xml"]]
    arguments += ["--results", files["searches.jsonl"]]
    result = CliRunner().invoke(main, list(map(str, arguments)))
    return result, files


@pytest.mark.some(0)
def test_the_text_says_who_caught_what(recorded):
    result, _ = recorded
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "bug trace unit plain" in lines
    assert any(line.startswith("D13 1 - ") for line in lines), result.stdout
    assert "BitmapPool - -" in lines
    assert "2 of 2 specimens are caught, 0 of 1 oddities accused" in lines


def test_the_text_points_to_the_faulty_kernels(recorded):
    result, _ = recorded
    assert "poolproof kernels --faulty" in result.stdout


def test_the_json_has_a_row_for_each_bug_with_its_cells(recorded):
    value = json.loads(recorded[1]["matrix.json"].read_text())
    rows = {row["id"]: row for row in value["rows"]}
    assert list(rows) == ["Q3", "D13", "BitmapPool"]
    caught = rows["D13"]["cells"]["plain"]
    assert (caught["caught"], caught["of"]) == (1, 1)
    assert caught["length"] == 1
    assert caught["steps"] >= 1
    assert rows["D13"]["threads"][0] == "vllm#29387"
    assert (
        "profile has no events" in rows["Q3"]["cells"]["EVT"]["why_not"]
        or "does not state" in (rows["Q3"]["cells"]["EVT"]["why_not"])
    )


def test_the_page_links_threads_and_runs_no_script(recorded):
    page = recorded[1]["matrix.html"].read_text()
    assert '<a href="https://github.com/vllm-project/vllm/issues/29387">' in page
    assert "<script" not in page


def test_the_markdown_has_the_verdict_as_its_heading(recorded):
    text = recorded[1]["matrix.md"].read_text()
    assert text.startswith("# 2 of 2 specimens are caught, 0 of 1 oddities accused\n")
    assert "| D13 " in text


def test_in_junit_a_specimen_is_a_case(recorded):
    text = recorded[1]["matrix.xml"].read_text()
    assert ' tests="3" failures="0"' in text
    assert 'name="D13' in text


def test_a_folder_gets_a_recorded_matrix_in_every_form(recorded, poolproof, folder):
    again = poolproof("bugs", "--show", recorded[1]["matrix.json"], "--report", "out")
    assert again.exit_code == 0
    names = {"matrix.json", "matrix.md", "matrix.html", "matrix.txt", "junit.xml"}
    assert {path.name for path in (folder / "out").iterdir()} == names
    assert (folder / "out" / "matrix.md").read_text() == recorded[1]["matrix.md"].read_text()


def test_a_recorded_matrix_is_shown_again_without_a_search(recorded, poolproof):
    result, files = recorded
    again = poolproof("bugs", "--show", files["matrix.json"])
    # The oldest click gives both streams as one: what tells of the search comes before the matrix.
    assert again.exit_code == 0
    assert result.stdout.endswith(again.stdout)


@pytest.mark.some(0)
def test_an_interrupted_run_goes_on_where_it_stopped(recorded, poolproof, folder):
    lines = recorded[1]["searches.jsonl"].read_text().splitlines(keepends=True)
    searches = folder / "searches.jsonl"
    searches.write_text("".join(lines[:-1]) + lines[-1][:20])
    again = poolproof("bugs", *QUICK, "--results", searches)
    assert again.exit_code == 0, again.output
    assert f"{len(lines) - 2} finished searches are taken from" in again.stderr
    assert f"; 1 of {len(lines) - 1} searches are left" in again.stderr
    assert len(searches.read_text().splitlines()) == len(lines)


def test_a_finished_run_searches_nothing_again(recorded, poolproof, folder):
    before = recorded[1]["searches.jsonl"].read_text()
    searches = folder / "searches.jsonl"
    searches.write_text(before)
    again = poolproof("bugs", *QUICK, "--results", searches)
    assert "; 0 of" in again.stderr
    assert searches.read_text() == before


def test_results_of_other_seeds_stay_and_are_not_used(poolproof, folder):
    searches = folder / "searches.jsonl"
    for seeds in (1, 2):
        run = poolproof(
            "bugs", "--only", "Q3", "--detector", "plain", "--seeds", seeds, "--results", searches
        )
        assert run.exit_code == 0, run.output
    assert "; 1 of 2 searches are left" in run.stderr


@pytest.mark.some(0)
def test_results_of_other_code_are_not_taken(recorded, poolproof, folder):
    header, *lines = recorded[1]["searches.jsonl"].read_text().splitlines(keepends=True)
    searches = folder / "searches.jsonl"
    searches.write_text(header.replace('"code":"', '"code":"0') + "".join(lines))
    again = poolproof("bugs", *QUICK, "--results", searches)
    assert again.exit_code == 0, again.output
    assert "was made with other code" in again.stderr
    assert "all is searched anew" in again.stderr


def test_two_runs_do_not_share_a_file(poolproof, folder):
    from poolproof.kill_matrix.building import ResultsFile

    with ResultsFile(folder / "searches.jsonl"):
        run = poolproof("bugs", *QUICK, "--results", "searches.jsonl")
    assert run.exit_code == 2
    assert "is in use by another run" in run.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no end", 'line 1 lacks "format"'),
        ('{"format": "other"}\n', 'line 1 lacks "format"'),
        ("[]\n", 'line 1 lacks "format"'),
        ("\x00\n", 'line 1 lacks "format"'),
    ],
)
def test_a_file_of_something_else_is_not_touched(poolproof, folder, text, why):
    searches = folder / "notes.txt"
    searches.write_text(text)
    run = poolproof("bugs", *QUICK, "--results", searches)
    assert run.exit_code == 2
    assert why in run.stderr
    assert searches.read_text() == text


def test_a_damaged_line_is_named(recorded, poolproof, folder):
    lines = recorded[1]["searches.jsonl"].read_text().splitlines(keepends=True)
    searches = folder / "searches.jsonl"
    searches.write_text("".join([lines[0], '{"subject": "Q3"}\n', *lines[1:]]))
    run = poolproof("bugs", *QUICK, "--results", searches)
    assert run.exit_code == 2
    assert "line 2 is no result ('detector')" in run.stderr


def test_a_bug_that_everybody_misses_fails_the_run(poolproof):
    run = poolproof("bugs", "--only", "Q5", "--detector", "unit")
    assert run.exit_code == 1
    assert "missed by every detector Q5" in " ".join(run.stdout.split())


def test_a_bug_that_nobody_can_speak_of_is_not_missed(poolproof):
    run = poolproof("bugs", "--only", "Q3", "--detector", "DATA")
    assert run.exit_code == 0, run.output
    assert "nobody could speak of Q3" in " ".join(run.stdout.split())


def test_level_quick_leaves_out_standard(poolproof, recorded):
    from poolproof.cli.bugs_command import _chosen_columns
    from poolproof.kill_matrix.detectors import DETECTORS

    names = [column.name for column in _chosen_columns(None, "quick", DETECTORS)]
    assert "certify-quick" in names
    assert "certify-standard" not in names


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--only", "A999"), "no bug or oddity 'A999'; known are Q1"),
        (("--only", ","), "name at least one bug or oddity"),
        (("--detector", "luck"), "no detector 'luck'; known are unit"),
        (("--seeds", "0"), "'--seeds'"),
        (("--depth", "deep"), "'--depth'"),
        (("--show", "x.json", "--only", "Q1"), "--only: --show searches nothing"),
        (("--show", "absent.json"), "cannot read absent.json"),
        (("--json", "nowhere/x.json"), "there is no folder nowhere"),
        (("--junit", "nowhere/x.xml"), "there is no folder nowhere"),
    ],
)
def test_bad_arguments_are_named(poolproof, arguments, message):
    run = poolproof("bugs", *arguments)
    assert run.exit_code == 2
    assert message in " ".join(run.stderr.split())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("{}", "lacks the field 'format'"),
        ('{"format": "x"}', "its format is not poolproof-kill-matrix"),
    ],
)
def test_a_file_without_a_matrix_is_refused(poolproof, folder, text, why):
    (folder / "x.json").write_text(text)
    run = poolproof("bugs", "--show", "x.json")
    assert run.exit_code == 2
    assert why in run.stderr


def test_the_name_of_a_level_means_all_of_it():
    known = subjects()
    rows = _chosen_rows("engine,Q1", known)
    assert [row.id for row in rows if row.level != "engine"] == ["Q1"]
    assert [row.id for row in rows if row.level == "engine"] == [
        name for name, row in known.items() if row.level == "engine"
    ]
