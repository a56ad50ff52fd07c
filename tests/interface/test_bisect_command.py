"""`poolproof bisect`: the commit since which a trace fails, and what is said where none can be."""

import re
import subprocess
from pathlib import Path

import pytest

from poolproof.contract.commands import PopLeft
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation

QUEUE = """
class Queue:
    def __init__(self, num_blocks):
        self.queue = list(range(num_blocks))

    def num_free(self):
        return len(self.queue)

    def free_order(self):
        return list(self.queue)

    def popleft(self):
        return self.queue.pop(PLACE)

    def remove(self, block_id):
        self.queue.remove(block_id)

    def append(self, block_id):
        self.queue.append(block_id)
"""


def git(*words):
    done = subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *words],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


def commit(message, text):
    Path("engine").mkdir(exist_ok=True)
    Path("engine/queue.py").write_text(text)
    git("add", "-A")
    git("commit", "-q", "-m", message, "--allow-empty")
    return git("rev-parse", "HEAD")


@pytest.fixture
def history(folder, monkeypatch):
    """A checkout in which the third of five commits breaks the queue, and its trace beside it."""
    Path("checkout").mkdir()
    monkeypatch.chdir("checkout")
    git("init", "-q")
    right, wrong = QUEUE.replace("PLACE", "0"), QUEUE.replace("PLACE", "-1")
    commits = [
        commit("right", right),
        commit("a remark", f"# so\n{right}"),
        commit("breaks", wrong),
    ]
    commits += [commit("no Python", "class Queue("), commit("still wrong", f"# so\n{wrong}")]
    trace = Trace(
        target="engine/queue.py:Queue",
        level="queue",
        profile=Profile(),
        num_blocks=2,
        enable_caching=True,
        commands=(PopLeft(),),
        violation=Violation("ORD", Severity.ORDER, "block 1 is not the head"),
    )
    Path("../trace.jsonl").write_text("\n".join(trace.lines()) + "\n")
    return commits


@pytest.mark.some(0)
def test_the_first_bad_commit_is_found_and_the_checkout_stays(poolproof, history, monkeypatch):
    done = poolproof("bisect", "../trace.jsonl", "--good", history[0])
    assert done.exit_code == 0, done.output
    assert re.search(r"first commit at which it fails:\n\w+  [\d-]+  x  breaks", done.output)
    assert "engine/queue.py" in done.output
    assert git("rev-parse", "HEAD") == history[-1]
    assert git("worktree", "list").count("\n") == 0
    assert git("status", "--porcelain") == ""


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [
        (4, "HEAD", "good and bad do not differ: .* are one commit"),
        (2, "HEAD", "do not differ: the trace fails at both; name an older good commit"),
        (0, 1, "do not differ: the trace holds at both; name a commit at which it fails"),
        (4, 0, "does not descend from"),
        (3, "HEAD", "cannot be replayed at the good commit .*: engine/queue.py cannot be imported"),
        ("nothing", "HEAD", "--good nothing is no commit of this checkout"),
    ],
)
def test_ends_between_which_there_is_nothing_to_find(poolproof, history, good, bad, says):
    ends = [history[end] if isinstance(end, int) else end for end in (good, bad)]
    done = poolproof("bisect", "../trace.jsonl", "--good", ends[0], "--bad", ends[1])
    assert done.exit_code == 2
    assert re.search(says, done.stderr), done.output


def test_a_dirty_checkout_is_named_with_what_is_dirty(poolproof, history):
    Path("engine/queue.py").write_text("")
    done = poolproof("bisect", "../trace.jsonl", "--good", history[0])
    assert done.exit_code == 2
    assert "has changes that no commit has (engine/queue.py): commit or stash them" in done.stderr


def test_a_folder_that_is_no_checkout_is_named(poolproof, history, monkeypatch):
    monkeypatch.chdir("..")
    done = poolproof("bisect", "trace.jsonl", "--good", "x")
    assert (done.exit_code, "is no git checkout" in done.stderr) == (2, True)


@pytest.mark.deep  # six replays, each in a process of its own
def test_commits_that_are_not_built_are_skipped(poolproof, history):
    build = "! grep -q PLAICE engine/queue.py && ! git log -1 --format=%s | grep -q breaks"
    done = poolproof("bisect", "../trace.jsonl", "--good", history[0], "--build", build)
    assert done.exit_code == 0, done.output
    assert "cannot be replayed" in done.output
    assert "one of these, which cannot all be replayed" in done.output
