"""The plugin in other people's projects: pytest is started there, as a user does it."""

import os
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import poolproof
from poolproof.certification.verdict import Rules, judge
from poolproof.contract.commands import PopLeft

QUEUE = '''
class Queue:
    """Gives its last block first, and says nothing of it."""

    def __init__(self, num_blocks):
        self.queue = list(range(num_blocks))

    def num_free(self):
        return len(self.queue)

    def free_order(self):
        return list(self.queue)

    def popleft(self):
        return self.queue.pop({place})

    def remove(self, block_id):
        self.queue.remove(block_id)

    def append(self, block_id):
        self.queue.append(block_id)
'''

TESTS = """
import poolproof
import pytest
from queues.right import Queue as Right
from queues.wrong import Queue as Wrong


def test_wrong():
    poolproof.assert_holds(poolproof.load_target(Wrong), in_process=True)


def test_trace_of_the_wrong_one():
    poolproof.assert_fixed("traces/order.jsonl")


def test_trace_on_the_right_one():
    poolproof.assert_fixed("traces/order.jsonl", target="queues/right.py:Queue", in_process=True)


def test_trace_whose_target_is_gone():
    poolproof.assert_fixed("traces/gone.jsonl")


def test_no_trace():
    poolproof.assert_fixed("traces/never.jsonl")


def test_unknown_argument():
    poolproof.assert_holds(Right, dept="quick")


@pytest.mark.slow
@pytest.mark.poolproof("queues/wrong.py:Queue")
def test_items(poolproof_check):
    poolproof_check()


@pytest.mark.poolproof("queues/nowhere.py:Queue")
def test_missing(poolproof_check):
    poolproof_check()


@pytest.mark.poolproof("impl-queue", dept="quick")
def test_typo(poolproof_check):
    poolproof_check()
"""


def run_pytest(folder, *arguments, environment=None):
    """What pytest prints in a folder, and each item's outcome with its message."""
    record = folder / "record.xml"
    command = [sys.executable, "-m", "pytest", f"--junit-xml={record}", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder,
        env={**os.environ, "COLUMNS": "200", **(environment or {})},
    )  # fmt: skip
    items = {}
    if record.is_file():
        for case in ET.parse(record).getroot().iter("testcase"):  # noqa: S314 - pytest wrote it
            failure = case.find("failure")
            items[case.get("name")] = None if failure is None else failure.text
    return done, items


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with a right and a wrong queue, and the trace of the wrong one."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "queues").mkdir()
    (folder / "queues" / "__init__.py").write_text("")
    (folder / "queues" / "right.py").write_text(QUEUE.format(place=0))
    (folder / "queues" / "wrong.py").write_text(QUEUE.format(place=-1))
    (folder / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\npythonpath = ['.']\naddopts = ['--strict-markers']\n"
        "markers = ['slow: takes long']\nfilterwarnings = ['error']\n"
    )
    tests = folder / "tests"
    (tests / "traces").mkdir(parents=True)
    (tests / "test_queues.py").write_text(TESTS)
    trace = poolproof.Trace(
        target="queues/wrong.py:Queue",
        level="queue",
        profile=poolproof.Profile(),
        num_blocks=2,
        enable_caching=True,
        commands=(PopLeft(),),
        violation=poolproof.Violation("ORD", poolproof.Severity.ORDER, "block 1 is not the head"),
    )
    text = "\n".join(trace.lines()) + "\n"
    (tests / "traces" / "order.jsonl").write_text(text)
    (tests / "traces" / "gone.jsonl").write_text(text.replace("wrong.py", "gone.py"))
    return folder


@pytest.fixture(scope="module")
def whole(project):
    """One run of everything, started in the folder of the tests."""
    return run_pytest(project / "tests", "--rootdir", str(project), "-c", "../pyproject.toml")


def test_what_does_not_hold_shows_its_steps(whole):
    done, items = whole
    failed = items["test_wrong"]
    assert "queues.wrong:Queue does not hold (1 finding, depth quick): ORD" in failed
    assert re.search(r"> +\d+ +popleft\(\)", failed), failed
    assert failed.rstrip().endswith("tests/test_queues.py:9: test_wrong")
    assert "Traceback" not in done.stdout
    assert "def assert_holds" not in done.stdout


def test_what_holds_gives_its_certificate(samples, monkeypatch):
    held = judge(samples.certificate(), Rules())
    monkeypatch.setattr("poolproof.api.certify", lambda target, *, depth: held)
    assert held.verdict is poolproof.Verdict.HOLDS
    assert poolproof.assert_holds("impl") is held


def test_a_run_that_says_too_little_is_no_pass(samples, monkeypatch):
    from dataclasses import replace

    unsure = replace(samples.certificate(), verdict=poolproof.Verdict.INCONCLUSIVE)
    monkeypatch.setattr("poolproof.api.certify", lambda target, *, depth: unsure)
    with pytest.raises(AssertionError, match="is not shown to hold"):
        poolproof.assert_holds("impl")


def test_the_summary_has_the_headline(whole):
    assert "FAILED test_queues.py::test_wrong - queues.wrong:Queue does not hold" in whole[0].stdout


def test_a_trace_is_found_beside_its_test_and_its_target_above(whole):
    _, items = whole
    assert (
        "traces/order.jsonl breaks queues/wrong.py:Queue again: ORD"
        in items["test_trace_of_the_wrong_one"]
    )
    assert items["test_trace_on_the_right_one"] is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("test_trace_whose_target_is_gone", "there is no queues/gone.py in .*: if it has moved"),
        ("test_no_trace", "there is no trace traces/never.jsonl in .* or above; copy it there"),
        ("test_unknown_argument", "has no argument 'dept'; did you mean depth"),
        ("test_missing[conclusive]", "queues/nowhere.py does not exist; give the path"),
        ("test_typo[conclusive]", "has no option 'dept'; did you mean depth"),
    ],
)
def test_a_mistake_is_a_sentence(whole, name, says):
    text = whole[1][name]
    assert re.search(says, text), text
    assert len(text.strip().splitlines()) == 3  # the sentence, and where the test stands


def test_a_target_becomes_an_item_for_each_invariant(whole):
    _, items = whole
    names = [name for name in items if name.startswith("test_items")]
    codes = ("queue-I1", "queue-OWN", "queue-LINK", "queue-ORD", "queue-CRASH", "conclusive")
    assert names == [f"test_items[{code}]" for code in codes]
    assert [name for name in names if items[name]] == ["test_items[queue-ORD]"]
    assert "queues/wrong.py:Queue does not hold" in items["test_items[queue-ORD]"]


@pytest.mark.deep  # three processes that each import what they need
def test_workers_of_xdist_share_one_run(project):
    (project / "tests" / "test_counted.py").write_text(
        textwrap.dedent("""
        import pytest

        @pytest.mark.poolproof("queues/counted.py:Queue", in_process=True)
        def test_counted(poolproof_check):
            poolproof_check()
        """)
    )
    count = "from queues.wrong import Queue\n\nwith open('imports', 'a') as f: f.write('x')\n"
    (project / "queues" / "counted.py").write_text(count)
    done, items = run_pytest(project, "-n", "2", "tests/test_counted.py")
    assert sum(text is not None for text in items.values()) == 1, done.stdout
    # Each worker looks once, and one of them runs what all items share.
    assert (project / "imports").read_text() == "xxx"


@pytest.mark.some(0)
def test_one_item_is_selected_by_its_name(project):
    done, _ = run_pytest(
        project, "--collect-only", "-q", "-m", "slow", "-k", "queue-I1", "tests/test_queues.py"
    )
    assert re.findall(r"::(\S+)", done.stdout) == ["test_items[queue-I1]"], done.stdout


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def test_it(poolproof_check): ...", "takes poolproof_check and has no target; write"),
        (
            "import pytest\n@pytest.mark.poolproof('impl')\ndef test_it(): ...",
            r"does not use it; write: def test_it\(poolproof_check\)",
        ),
    ],
)
def test_half_of_a_use_is_named_with_the_other_half(folder, text, says):
    (folder / "test_it.py").write_text(text)
    done, _ = run_pytest(folder)
    assert done.returncode != 0
    assert re.search(says, done.stdout + done.stderr), done.stdout + done.stderr


MARKED = """
import pytest


@pytest.mark.poolproof("impl-manager")
def test_by_the_table(poolproof_check):
    poolproof_check()


@pytest.mark.poolproof("impl-manager", layouts=["sliding"])
def test_by_the_marker(poolproof_check):
    poolproof_check()
"""


@pytest.mark.some(0)
def test_the_marker_asks_for_what_the_project_says(folder):
    (folder / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\naddopts = ['--collect-only', '-q']\n"
        "[tool.poolproof]\ntargets = ['impl-manager']\nlayouts = ['full']\n"
    )
    (folder / "test_manager.py").write_text(MARKED)
    done, _ = run_pytest(folder)
    layouts = set(re.findall(r"(test_by_\w+)\[manager-(\w+)-", done.stdout))
    assert layouts == {("test_by_the_table", "full"), ("test_by_the_marker", "sliding")}


@pytest.mark.some(0)
def test_a_table_that_cannot_be_used_is_a_sentence(folder):
    (folder / "pyproject.toml").write_text("[tool.poolproof]\ntargets = ['impl']\nsed = 1\n")
    (folder / "test_pool.py").write_text(MARKED.replace("impl-manager", "impl"))
    done, items = run_pytest(folder, "-q")
    assert "unknown key 'sed'; did you mean seed?" in items["test_by_the_table[conclusive]"]
    assert "Traceback" not in done.stdout


@pytest.mark.deep  # imports and draws in a process of its own
def test_hypothesis_s_profile_and_database_are_the_host_s(folder):
    (folder / "queue.py").write_text(QUEUE.format(place=-1))
    (folder / "conftest.py").write_text(
        "from hypothesis import settings\n"
        "settings.register_profile('few', max_examples=30, deadline=None)\n"
        "settings.load_profile('few')\n"
    )
    (folder / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.poolproof('queue.py:Queue', hypothesis=True)\n"
        "def test_it(poolproof_check):\n    poolproof_check()\n"
    )
    _, items = run_pytest(folder, "-k", "hypothesis")
    assert (
        "queue.py:Queue does not hold (a tape of Hypothesis)" in items["test_it[queue-hypothesis]"]
    )
    assert any((folder / ".hypothesis" / "examples").iterdir())


def test_an_old_pytest_is_named_with_the_one_that_is_needed(monkeypatch):
    from poolproof import pytest_plugin

    monkeypatch.setattr(pytest, "__version__", "6.2.5")
    with pytest.raises(pytest.UsageError, match=r"needs pytest 7.0 or newer, and this is 6.2.5"):
        pytest_plugin._refuse_old_pytest()


def test_the_plugin_is_light_until_it_is_used(folder):
    (folder / "test_it.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    ours = {n for n in sys.modules if n.startswith('poolproof.')}\n"
        "    assert ours == {'poolproof.pytest_plugin'}\n"
        "    assert not {'hypothesis', 'torch', 'vllm', 'click', 'rich'} & set(sys.modules)\n"
    )
    done, _ = run_pytest(folder, "-p", "no:hypothesispytest", "-q")
    assert done.returncode == 0, done.stdout


def test_our_modules_are_imported_as_they_are_written():
    """pytest would rewrite the asserts of a package that brings a plugin."""
    import poolproof.harness.pool_session as module

    assert "rewrite" not in type(module.__loader__).__module__


def test_the_plugin_stands_in_the_installed_package():
    from importlib.metadata import entry_points

    (plugin,) = entry_points(group="pytest11", name="poolproof")
    assert Path(plugin.load().__file__).name == "pytest_plugin.py"
