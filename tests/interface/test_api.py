"""The public functions: what they answer, what they refuse, and that nothing else is needed."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import poolproof
from poolproof.certification.certify import InterruptedCertification


class RightQueue:
    """The smallest free queue that is right."""

    def __init__(self, num_blocks):
        self.queue = list(range(num_blocks))

    def num_free(self):
        return len(self.queue)

    def free_order(self):
        return list(self.queue)

    def popleft(self):
        return self.queue.pop(0)

    def remove(self, block_id):
        self.queue.remove(block_id)

    def append(self, block_id):
        self.queue.append(block_id)


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """The certificate of a queue that gives its last block first, and where its file is."""
    path = tmp_path_factory.mktemp("queue") / "queue.py"
    source = inspect.getsource(RightQueue).replace("pop(0)", "pop()")
    path.write_text(source)
    return poolproof.certify(f"{path}:RightQueue", depth="quick", workers=1)


def test_every_public_name_can_be_imported_and_says_what_it_is():
    for name in poolproof.__all__:
        assert getattr(poolproof, name).__doc__, name
    assert set(poolproof.__all__) <= set(dir(poolproof))


def test_type_checkers_are_told_of_the_same_names():
    stub = Path(poolproof.__file__).with_suffix(".pyi").read_text()
    assert sorted(re.findall(r"as (\w+)", stub)) == sorted(poolproof.__all__)


def test_a_name_that_is_not_public_is_no_attribute():
    name = "certifi"
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
        getattr(poolproof, name)


def test_importing_the_package_imports_no_engine_and_none_of_our_modules():
    code = (
        "import sys, poolproof\n"
        "print(sorted({'torch', 'vllm', 'hypothesis', 'click', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.some(0)
def test_a_certificate_holds_the_verdict_and_what_was_done():
    certificate = poolproof.certify("impl-queue", depth="quick", in_process=True)
    assert certificate.verdict is poolproof.Verdict.HOLDS
    assert certificate.findings == ()
    assert {stage.outcome for stage in certificate.stages} == {poolproof.StageOutcome.HOLDS}
    again = poolproof.Certificate.from_json(certificate.to_json())
    assert again.to_json() == certificate.to_json()


def test_a_finding_is_replayed_shrunk_and_rendered(refused, folder):
    assert refused.verdict is poolproof.Verdict.REFUSED
    finding = refused.findings[0]
    trace = finding.whole_trace()
    assert poolproof.replay(trace).violation.invariant == finding.violation.invariant
    assert len(poolproof.shrink(trace).commands) == len(trace.commands)
    (folder / "t.jsonl").write_text(poolproof.render(finding, "jsonl"))
    assert poolproof.replay("t.jsonl", in_process=True).violation == trace.violation
    for form in ("text", "markdown", "html", "pytest"):
        assert finding.violation.invariant in poolproof.render(trace, form)
    for form in ("text", "json", "markdown", "junit"):
        assert finding.fingerprint in poolproof.render(refused, form)


@pytest.mark.some(0)
def test_a_generated_test_needs_the_public_names_alone(refused, folder):
    finding = refused.findings[0]
    text = poolproof.render(finding, "pytest")
    assert "import poolproof\n" in text
    assert "from poolproof" not in text
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert finding.violation.sentence.splitlines()[0] in done.stdout


def test_every_state_is_explored():
    found = poolproof.explore("impl", num_blocks=2, workers=1, in_process=True)
    assert found.holds
    assert found.stages[0].outcome is poolproof.StageOutcome.HOLDS


def test_a_class_is_a_target():
    target = poolproof.load_target(RightQueue)
    assert target.real_class is RightQueue
    assert target.name.endswith(":RightQueue")
    assert poolproof.explore(RightQueue, num_blocks=2, in_process=True).holds


def test_rows_of_a_profile_take_the_place_of_declared_ones():
    found = poolproof.explore("impl", num_blocks=2, profile={"eviction": "lifo"}, in_process=True)
    assert found.holds
    assert found.target == "impl[eviction=lifo]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"depth": "fast"}, "depth must be one of quick, standard, deep, not 'fast'"),
        ({"seed": -1}, "seed must be an int from 0 on, not -1"),
        ({"workers": 0}, "workers must be an int from 1 on, not 0"),
        ({"workers": True}, "workers must be an int from 1 on, not True"),
        ({"layouts": "full"}, "layouts must be a list of names, not 'full'"),
        ({"fail_on": ["crsh"]}, "fail_on must hold severities .*crash.*not 'crsh'"),
        ({"fail_on": []}, "fail_on must name at least one of"),
        ({"call_timeout_s": 0}, "call_timeout_s must be a number above 0, not 0"),
        ({"memory_mib": "much"}, "memory_mib must be a number above 0, not 'much'"),
        ({"profile": ["eviction"]}, "profile must map rows to values"),
        ({"fail_on": 3}, "fail_on must hold severities"),
        ({"fail_on": [["crash"]]}, "fail_on must hold severities"),
        ({"known": 3}, "known must be a path, not 3"),
        ({"baseline": ["a.json"]}, "baseline must be a path"),
    ],
)
def test_an_argument_that_is_not_allowed_is_named_with_what_is(arguments, says):
    with pytest.raises(poolproof.OptionError, match=says):
        poolproof.certify("impl", **arguments)


def test_what_cannot_be_named_or_run_is_said(refused):
    with pytest.raises(poolproof.OptionError, match="target must be a text such as 'impl'"):
        poolproof.certify(3)
    with pytest.raises(poolproof.TargetError, match="unknown target 'nothing'"):
        poolproof.certify("nothing", depth="quick", in_process=True)
    with pytest.raises(poolproof.TargetError, match="unknown profile key 'colour'"):
        poolproof.explore("impl", profile={"colour": "red"}, in_process=True)
    with pytest.raises(poolproof.OptionError, match="num_blocks must be an int, not '4'"):
        poolproof.explore("impl", num_blocks="4")
    for wrong in (0, True, "60"):
        with pytest.raises(poolproof.OptionError, match="max_seconds must be a number above 0"):
            poolproof.explore("impl-engine", max_seconds=wrong)
    with pytest.raises(poolproof.TraceError, match="cannot read trace"):
        poolproof.replay("nowhere.jsonl")
    with pytest.raises(poolproof.OptionError, match="trace must be a Trace, a path"):
        poolproof.replay(3)
    with pytest.raises(poolproof.OptionError, match="form must be one of text, json"):
        poolproof.render(refused, "pdf")
    with pytest.raises(poolproof.OptionError, match="subject must be a Certificate"):
        poolproof.render(3)


def test_all_errors_have_one_base():
    errors = [getattr(poolproof, name) for name in poolproof.__all__ if name.endswith("Error")]
    assert all(issubclass(error, poolproof.PoolproofError) for error in errors)


def test_an_interruption_keeps_what_was_found(monkeypatch, samples):
    def interrupted(load, options, progress):
        raise InterruptedCertification(samples.certificate(samples.finding()))

    monkeypatch.setattr("poolproof.certification.certify.certify", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        poolproof.certify("impl")
    assert raised.value.certificate.verdict is poolproof.Verdict.INCONCLUSIVE


@pytest.mark.some(0)
def test_the_place_of_a_class_can_be_loaded_again(folder):
    path = Path(folder, "mine.py")
    path.write_text(
        "import poolproof\n"
        "from test_api import RightQueue\n"
        "class Mine(RightQueue): pass\n"
        "if __name__ == '__main__':\n"
        "    print(poolproof.load_target(poolproof.load_target(Mine).name).name)\n"
    )
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(Path(__file__).parent)},
    )  # fmt: skip
    assert done.stdout == f"{path}:Mine\n", done.stderr
