"""The soak: what is right is not accused, what is wrong is, and the record adds up."""

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.contract.trace import read_trace
from poolproof.targets.load import load_target

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    """What loads a script of benchmarks/, which is no package, with those beside it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name):
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
            module = importlib.util.module_from_spec(spec)
            monkeypatch.setitem(sys.modules, name, module)
            spec.loader.exec_module(module)
        return sys.modules[name]

    return load


def soak(record, *arguments):
    return [sys.executable, str(BENCHMARKS / "soak.py"), "--json", str(record), *arguments]


def run(record, *arguments):
    return subprocess.run(soak(record, *arguments), capture_output=True, text=True, check=False)


def steps_in(record):
    found = json.loads(record.read_text())
    assert found["steps"] == sum(row["steps"] for one in found["runs"] for row in one["done"])
    return found["steps"]


@pytest.mark.deep
def test_no_subject_is_accused(script):
    subjects = script("soak_subjects")
    source = random.Random(0)
    for subject in subjects.subjects():
        # The time is over when it begins: one batch of each.
        found = subjects.drive(subject, source, 0.0, lambda _: None)
        assert found.traces == (), (found.name, found.traces[0].violation)
        assert found.num_steps > 0


def test_every_correct_allocator_is_driven_by_both_drivers(script):
    found = script("soak_subjects").subjects()
    drivers = {}
    for subject in found:
        drivers.setdefault(subject.implementation, set()).add(subject.driver)
    assert {"impl", "reference", "impl-manager", "impl-nano", "BitmapPool"} <= drivers.keys()
    assert all({"plain driver", "campaign"} <= names for names in drivers.values())


def test_what_is_wrong_is_an_alarm_with_its_trace(script, tmp_path):
    subjects, record, soaking = (script(f"soak{part}") for part in ("_subjects", "_record", ""))
    target = load_target(f"{ROOT}/examples/stale_index.py:Pool")
    (plain,) = (
        subject
        for subject in subjects.subjects()
        if (subject.driver, subject.implementation) == ("plain driver", "BitmapPool")
    )
    wrong = replace(plain, load=lambda _: target)
    found = subjects.drive(wrong, random.Random(0), time.monotonic() + 600, lambda _: None)
    run = soaking.new_run("a")
    soaking.Soak(record.Record(tmp_path / "soak.json"), run)._alarm(found.traces[0], "stale", "0")
    (alarm,) = run.alarms
    kept = read_trace(tmp_path / alarm["trace"])
    assert kept.violation.invariant == found.traces[0].violation.invariant


@pytest.mark.some(0)
def test_a_second_run_adds_to_the_first(tmp_path):
    record = tmp_path / "soak.json"
    first = run(record, "--seconds", "0.1")
    assert first.returncode == 0, first.stderr
    before = steps_in(record)
    second = run(record, "--seconds", "0.1", "--workers", "2")
    assert second.returncode == 0, second.stderr
    assert steps_in(record) > before
    seeds = [one["seed"] for one in json.loads(record.read_text())["runs"]]
    assert len(set(seeds)) == 2


def test_a_killed_run_keeps_its_slices(tmp_path):
    record = tmp_path / "soak.json"
    with subprocess.Popen(
        soak(record, "--seconds", "600", "--slice", "0.1"), stdout=subprocess.DEVNULL
    ) as process:
        while not record.exists():
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    assert steps_in(record) > 0


def test_two_soaks_on_one_folder_are_refused(script, tmp_path):
    soaking = script("soak")
    with soaking.alone(tmp_path / "soak.json"):
        refused = run(tmp_path / "soak.json", "--seconds", "0.1")
    assert refused.returncode == 2
    assert "another soak writes into" in refused.stderr


def test_records_are_put_together_once(script, tmp_path):
    record = script("soak_record")
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path in paths:
        one = script("soak").new_run(path.stem)
        one.count(("pool", "plain driver", "impl"), 10, 2)
        record.Record(path).write(one)
    for _ in range(2):
        both = record.Record(paths[0])
        both.add(paths[1])
        both.write()
    assert steps_in(paths[0]) == 20


def test_what_is_no_record_is_named(tmp_path):
    (tmp_path / "soak.json").write_text("[]")
    refused = run(tmp_path / "soak.json")
    assert refused.returncode == 2
    assert "is no record of a soak" in refused.stderr


def test_the_slope_is_that_of_the_second_half(script):
    memory = script("soak_record").Memory()
    for million in range(11):
        kib = 1000 * million if million < 5 else 5000 + 3 * million
        memory.add(10.0 * million, (million * 1_000_000, kib), at_rest=True)
        memory.add(10.0 * million + 4, (million * 1_000_000, 90_000), at_rest=False)
    told = memory.to_json()
    assert told["slope_kib_per_million_steps"] == pytest.approx(3)
    assert (told["most_kib"], told["longest_gap_s"], told["samples_taken"]) == (90_000, 6.0, 22)


def test_a_long_life_keeps_some_of_its_samples(script):
    record = script("soak_record")
    memory = record.Memory()
    for number in range(10 * record.MOST_SAMPLES):
        memory.add(float(number), (1_000 * number, number), at_rest=True)
    assert record.MOST_SAMPLES // 2 <= len(memory.samples) <= record.MOST_SAMPLES
    assert memory.to_json()["slope_kib_per_million_steps"] == pytest.approx(1000)
