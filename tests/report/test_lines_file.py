"""The file of an interrupted run: what is taken from it, what is left alone, what is dropped."""

import json

import pytest

from poolproof.report.lines_file import LinesFile
from poolproof.report.output_files import OutputError


class NotOursError(Exception):
    pass


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.jsonl"


def opened(path, run="one"):
    return LinesFile(path, "test-results", {"run": run}, NotOursError)


def filled(path):
    with opened(path) as file:
        file.append({"a": 1})
        file.append({"b": 2})
    return path.read_text()


def test_results_of_the_same_run_are_handed_out_with_their_lines(path):
    filled(path)
    with opened(path) as file:
        assert file.records == [(2, {"a": 1}), (3, {"b": 2})]
        assert file.older is None


def test_a_file_of_another_run_is_begun_anew_and_its_first_line_is_told(path):
    filled(path)
    with opened(path, "two") as file:
        assert file.records == []
        assert file.older == {"format": "test-results", "version": 1, "run": "one"}
    assert [json.loads(line)["run"] for line in path.read_text().splitlines()] == ["two"]


def test_what_an_interruption_cut_short_is_dropped_with_the_next_result(path):
    text = filled(path)
    path.write_text(text[:-4])
    with opened(path) as file:
        assert file.records == [(2, {"a": 1})]
        file.append({"b": 2})
    assert path.read_text() == text


def test_a_result_is_on_disk_before_the_next(path):
    with opened(path) as file:
        file.append({"a": 1})
        assert path.read_text().splitlines()[1] == '{"a":1}'


def test_a_damaged_line_is_told_and_the_file_stays_as_it_was(path):
    text = filled(path) + "{\nand a part"
    path.write_text(text)
    with pytest.raises(NotOursError, match="line 4 is not JSON"), opened(path):
        pass
    assert path.read_text() == text


@pytest.mark.parametrize(
    "content", [b"notes\n", b"notes", b"[1]\n", b"\xff\n", b'{"format":"x"}\n']
)
def test_a_file_of_something_else_stays_as_it_was(path, content):
    path.write_bytes(content)
    with pytest.raises(NotOursError), opened(path):
        pass
    assert path.read_bytes() == content


def test_two_runs_do_not_share_a_file(path):
    with (
        opened(path),
        pytest.raises(OutputError, match="in use by another run"),
        opened(path),
    ):
        pass


def test_a_file_that_was_refused_is_free_again(path):
    path.write_text("notes\n")
    with pytest.raises(NotOursError), opened(path):
        pass
    path.unlink()
    with opened(path) as file:
        file.append({"a": 1})


def test_without_a_path_nothing_is_kept():
    with opened(None) as file:
        file.append({"a": 1})
        assert file.records == []
