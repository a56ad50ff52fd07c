"""`poolproof workload`: its output, its errors and its exit statuses."""

import json
from pathlib import Path

import pytest

from poolproof.cli.command_line import main
from poolproof.contract.trace import read_trace

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = ROOT / "examples" / "requests_small.jsonl"
# 512 tokens a block keeps these runs short; two requests share the first id.
LINES = (
    '{"timestamp": 0, "input_length": 1200, "output_length": 3, "hash_ids": [1, 2, 3]}\n'
    '{"timestamp": 5, "input_length": 1500, "output_length": 9, "hash_ids": [1, 2, 4]}\n'
    '{"timestamp": 6, "input_length": 600, "output_length": 1, "hash_ids": [5, 6]}\n'
)

BROKEN = """
from poolproof.impl.block_pool import BlockPool


class Broken(BlockPool):
    def touch(self, block_ids):
        for block_id in block_ids:
            self._ref_counts[block_id] += 1
"""


@pytest.fixture
def requests(tmp_path):
    path = tmp_path / "requests.jsonl"
    path.write_text(LINES)
    return path


@pytest.fixture
def broken(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    return f"{path}:Broken"


@pytest.fixture
def workload(runner):
    def run(*arguments, status=0):
        target = () if "--target" in arguments else ("--target", "impl")
        result = runner.invoke(main, ["workload", *map(str, arguments), *target])
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def short(workload):
    def run(*arguments, status=0):
        return workload("--blocks", 6, "--block-size", 512, *arguments, status=status)

    return run


def row(output, label):
    (line,) = [line for line in output.splitlines() if line.startswith(label)]
    return line.removeprefix(label).split()


def test_the_table_says_what_was_found_and_what_was_checked(short, requests):
    output = short(requests).stdout
    assert "3 requests, 6 blocks of 512 tokens, 64 live at most" in output
    assert row(output, "hit rate, blocks") == ["25.00", "%"]
    assert row(output, "hit rate, tokens") == ["31.03", "%"]
    assert row(output, "blocks touched") == ["2"]
    assert row(output, "blocks allocated") == ["6"]
    assert row(output, "blocks held at most") == ["6", "of", "6"]
    assert row(output, "result") == ["holds"]
    assert "the whole pool after each of them" in output


def test_the_small_example_holds_on_a_pool_that_evicts(workload):
    output = workload(SMALL, "--blocks", 500, "--concurrent", 16, "--check", 10).stdout
    assert row(output, "result") == ["holds"]
    assert int(row(output, "cached blocks evicted")[0].replace(",", "")) > 0
    assert "each step of 1 request in 10" in output


def test_two_targets_stand_side_by_side_with_equal_hit_rates(short, requests):
    output = short(requests, "--target", "impl", "--target", "reference").stdout
    assert row(output, "result") == ["holds", "holds"]
    assert "hit rates: equal" in output


def test_hit_rates_that_differ_by_policy_are_explained(workload):
    arguments = ("--blocks", 500, "--concurrent", 8, "--check", "off", "--limit", 150)
    output = workload(
        SMALL, *arguments, "--target", "impl", "--target", "impl[eviction=lifo]"
    ).stdout
    assert "impl and impl[eviction=lifo] differ by policy: eviction lru against lifo" in output


def test_a_violation_is_named_and_exits_with_1(short, requests, broken):
    output = short(requests, "--concurrent", 1, "--target", broken, status=1).stdout
    assert "at request 2" in output
    assert row(output, "result") != ["holds"]


def test_another_target_is_still_served_after_a_violation(short, requests, broken):
    output = short(
        requests, "--concurrent", 1, "--target", broken, "--target", "impl", status=1
    ).stdout
    assert row(output, "result")[-1] == "holds"
    assert "hit rates" not in output


def test_the_trace_of_a_violation_is_written_where_asked(short, requests, broken, tmp_path):
    folder = tmp_path / "found"
    options = ("--concurrent", 1, "--target", broken, "--report", folder)
    output = short(requests, *options, status=1).stdout
    trace = read_trace(folder / "workload-1.jsonl")
    assert trace.violation is not None
    assert "next: poolproof shrink" in output


def test_without_checks_that_is_said(short, requests):
    output = short(requests, "--check", "off").stdout
    assert "checks: off" in output
    assert row(output, "steps judged") == ["none"]


def test_the_figures_are_written_as_json(short, requests, tmp_path):
    short(requests, "--target", "impl", "--target", "reference", "--json", tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["requests"] == 3
    assert found["hit_rates"] == "hit rates: equal"
    assert [target["target"] for target in found["targets"]] == ["impl", "reference"]
    assert found["targets"][0]["block_hit_rate"] == 0.25
    assert found["targets"][0]["violation"] is None


def test_limit_serves_the_first_requests_only(short, requests):
    assert short(requests, "--limit", 1).stdout.startswith("1 request, ")


def test_requests_too_large_for_the_pool_are_left_out_and_said(workload, requests):
    output = workload(requests, "--blocks", 2, "--block-size", 512).stdout
    assert "left out, larger than the whole pool: 2 of the requests" in output
    assert row(output, "requests served") == ["1"]


def test_when_no_request_fits_nothing_was_shown(workload, requests):
    result = workload(requests, "--blocks", 1, "--block-size", 512, status=2)
    assert "no request of" in result.stderr
    assert "fits into 1 blocks of 512 tokens" in result.stderr


def test_progress_goes_to_standard_error(short, requests):
    result = short(requests)
    assert "impl: requests" in result.stderr
    assert "impl: requests" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--block-size", 48), "block size 48 does not divide 512"),
        (("--block-size", -16), "block size -16 does not divide 512"),
        (("--blocks", 0), "0 is not in the range 1<=x<=10000000"),
        (("--concurrent", -1), "-1 is not in the range x>=1"),
        (("--limit", 0), "0 is not in the range x>=1"),
        (("--check", "sometimes"), "'sometimes' is not every, off or a number of at least 1"),
        (("--check", "0"), "'0' is not every, off or a number of at least 1"),
        (("--target", "imppl"), "unknown target 'imppl'; did you mean impl"),
        (("--target", "impl-queue"), "impl-queue is a queue; requests need a pool"),
        (("--json", "no/such/folder/x.json"), "there is no folder no/such/folder"),
    ],
)
def test_what_cannot_be_carried_out_exits_with_2(workload, requests, arguments, complaint):
    result = workload(requests, *arguments, status=2)
    assert complaint in " ".join(result.stderr.split())


def test_an_unreadable_file_exits_with_2(workload, tmp_path):
    result = workload(tmp_path / "absent.jsonl", status=2)
    assert result.stderr == (
        f"poolproof: cannot read request trace {tmp_path / 'absent.jsonl'}: "
        "No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 4 is not JSON"),
        ('{"timestamp": 0, "input_length": 5, "output_length": 1}', "line 4: the request lacks"),
        (
            '{"timestamp": 0, "input_length": -5, "output_length": 1, "hash_ids": []}',
            "line 4: input_length must be an integer of at least 1, not -5",
        ),
        (
            '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1]}',
            "line 4: input_length 600 needs 2 hash_ids",
        ),
    ],
)
def test_a_damaged_line_is_named_and_exits_with_2(workload, tmp_path, line, complaint):
    path = tmp_path / "requests.jsonl"
    path.write_text(f"{LINES}{line}\n")
    result = workload(path, status=2)
    assert complaint in result.stderr
    assert len(result.stderr.splitlines()) <= 2


def test_without_a_target_the_known_ones_are_listed(runner, requests):
    result = runner.invoke(main, ["workload", str(requests)])
    assert result.exit_code == 2
    assert "--target is missing" in result.output
    assert "impl-manager" in result.output
