"""Campaigns and explorations of what takes hashes of one length give it no others."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import pytest
from click.testing import CliRunner

from poolproof.cli.command_line import main

POOLS = ["WideRowsPool", "FourWordsPool", "IntegerKeyPool"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(main, arguments)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", POOLS)
def test_a_campaign_on_a_pool_of_one_width_breaks_nothing(run, name):
    target = f"poolproof.bugs.oddities:{name}"
    result = run("fuzz", target, "--steps", "30000", "--in-process", "--quiet")
    assert result.exit_code == 0, result.output
    assert "nothing was broken" in result.output


def test_a_campaign_on_an_index_of_one_width_breaks_nothing(run):
    target = "poolproof.bugs.odd_indexes:OneWidth"
    result = run("fuzz", target, "--steps", "30000", "--in-process", "--quiet")
    assert result.exit_code == 0, result.output
    assert "nothing was broken" in result.output


@pytest.mark.parametrize("name", POOLS)
def test_every_state_of_a_pool_of_one_width_is_visited(run, name):
    target = f"poolproof.bugs.oddities:{name}"
    result = run("explore", target, "--blocks", "2", "--pairs", "--in-process")
    assert result.exit_code == 0, result.output


def test_a_campaign_says_what_is_raised_where_no_length_is_declared(run):
    target = "poolproof.bugs.oddities:WideRowsPool[hash_bytes=any]"
    result = run("fuzz", target, "--steps", "3000", "--in-process", "--quiet")
    assert result.exit_code == 1, result.output
    assert "a row has room for 32 bytes, the hash has 16" in result.output
