"""A finding that depends on the length of hashes says how a pool states that it has one length."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import replace

import pytest

from poolproof.bugs.clean_pool import CleanPool
from poolproof.certification.finding_collector import FindingCollector
from poolproof.contract.commands import Allocate, Cache, Lookup
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.harness.isolation import Finished, Lost
from poolproof.harness.replay import replay
from poolproof.targets.target import Target


class Beacon:
    def bump(self, _command=None):
        pass


def pool_that_raises_on(is_wrong):
    class Raises(CleanPool):
        def cache(self, block_ids, hashes):
            if any(is_wrong(key) for key in hashes):
                raise ValueError("no room")
            super().cache(block_ids, hashes)

    return lambda n, on: Raises(n, enable_caching=on)


def finding(make, key, *, lost=()):
    """What is reported of a pool that is given this hash."""
    target = Target("mine.py:Pool", "pool", "native", Profile(), None, "mine.py", make)

    def run(job, argument):
        if job.__name__ in lost:
            return Lost()
        return Finished(job(target, argument, Beacon()))

    commands = (Allocate(2), Lookup(key), Cache((1,), (key,)))
    trace = Trace("mine.py:Pool", "pool", Profile(), 2, True, commands)
    trace = replace(trace, violation=replay(trace, make).violation)
    collector = FindingCollector(run, lambda trace, _: trace, 200, {})
    collector.add("a stage", trace)
    (found,) = collector.findings
    return found


@pytest.mark.parametrize("width", [8, 16, 20, 32])
def test_a_pool_of_one_width_is_told_the_row_and_stays_refused(width):
    make = pool_that_raises_on(lambda key: len(key) != width)
    found = finding(make, b"ab" * 17)
    assert found.violation.invariant == "CRASH"
    assert found.remark.endswith(
        "the same commands pass; a pool or index whose hashes all have one length says so in its "
        f"profile: hash_bytes={width}"
    )
    assert f"with hashes of {width} bytes instead of" in found.remark


def test_a_pool_with_a_limit_is_told_which_lengths_pass():
    found = finding(pool_that_raises_on(lambda key: len(key) not in (4, 8, 12)), b"ab" * 17)
    assert found.remark.startswith("with hashes of 4, 8 or 12 bytes instead of")
    assert found.remark.endswith("hash_bytes=N")


@pytest.mark.parametrize(
    "is_wrong", [lambda _key: True, lambda key: key.count(key[:1]) == len(key)]
)
def test_what_does_not_depend_on_the_length_is_told_nothing(is_wrong):
    assert finding(pool_that_raises_on(is_wrong), bytes(34)).remark == ""


def test_a_pool_that_hangs_on_other_lengths_keeps_its_finding():
    make = pool_that_raises_on(lambda key: len(key) != 8)
    found = finding(make, b"ab" * 17, lost=("try_hash_lengths",))
    assert found.violation.invariant == "CRASH"
    assert found.remark == ""
