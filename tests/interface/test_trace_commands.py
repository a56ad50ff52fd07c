"""show, replay and shrink: what they print and their exit statuses."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from poolproof.contract.commands import Allocate, Cache, CacheChain, Free, Lookup
from poolproof.contract.content import TokenChain
from poolproof.contract.profile import Profile
from poolproof.contract.trace import read_trace, write_trace
from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.settings import CampaignSettings

HASH = bytes.fromhex("41f041f0")
REPAIR = """\
        self.index = {key: block for key, block in self.index.items() if block not in taken}
        return taken"""


@pytest.fixture
def failing(samples, buggy):
    """A trace that fails on the buggy pool, longer than it has to be."""
    commands = (
        Allocate(2),
        Cache((0,), (HASH,)),
        Free((0,)),
        Allocate(2),
        Lookup(HASH),
        Free((1,)),
    )
    made = samples.trace(
        target=buggy,
        profile=Profile(eviction="lru", misuse="undefined"),
        num_blocks=3,
        commands=commands,
        violation=None,
        fingerprint=None,
    )
    write_trace(made, Path("failing.jsonl"))
    return "failing.jsonl"


def test_show_draws_a_trace(poolproof, samples):
    write_trace(samples.trace(), Path("t.jsonl"))
    result = poolproof("show", "t.jsonl")
    assert result.exit_code == 0
    assert result.output.startswith("f-7d3f0a11  IDX  wrong data of another request, feared\n")
    assert "  > 5  lookup(a)" in result.output


def test_show_finds_a_trace_by_the_beginning_of_its_fingerprint(poolproof, samples):
    folder = Path(".poolproof/findings")
    folder.mkdir(parents=True)
    write_trace(samples.trace(), folder / "f-7d3f0a11.jsonl")
    assert poolproof("show", "f-7d3f").output.startswith("f-7d3f0a11  IDX")
    missing = poolproof("show", "f-00")
    assert missing.exit_code == 2
    assert "no trace f-00 in .poolproof/findings; give the path" in missing.output


def test_show_asks_for_more_digits_where_several_traces_fit(poolproof, samples):
    folder = Path(".poolproof/findings")
    folder.mkdir(parents=True)
    for name in ("f-70000000", "f-71111111"):
        write_trace(samples.trace(), folder / f"{name}.jsonl")
    result = poolproof("show", "f-7")
    assert result.exit_code == 2
    assert "f-7 fits 2 traces: f-70000000, f-71111111; give more digits" in result.output


def test_show_as_html_escapes_what_the_trace_says(poolproof, samples):
    violation = samples.replace(samples.trace().violation, sentence="<script>alert(1)</script>")
    write_trace(samples.trace(violation=violation), Path("t.jsonl"))
    result = poolproof("show", "t.jsonl", "--as", "html", "-o", "t.html")
    page = Path("t.html").read_text()
    assert result.exit_code == 0
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert re.search(r'<tr class="bad"><th [^>]*>&gt; 5</th><td [^>]*>lookup\(a\)</td>', page)


def test_show_as_markdown_has_the_steps(poolproof, samples):
    write_trace(samples.trace(), Path("t.jsonl"))
    shown = poolproof("show", "t.jsonl", "--as", "markdown")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("# ")
    assert "lookup(a)" in shown.stdout
    assert "lookup of hash 41f041f0 answers with block 3" in shown.stdout


@pytest.mark.parametrize("form", ["json", "junit"])
def test_a_trace_has_no_form_that_is_read_by_programs_but_its_own(poolproof, samples, form):
    write_trace(samples.trace(), Path("t.jsonl"))
    refused = poolproof("show", "t.jsonl", "--as", form)
    assert refused.exit_code == 2
    said = " ".join(refused.output.split())
    assert "shown as text, markdown, html, pytest or python; its file is JSON already" in said


@pytest.mark.some(0)
def test_show_as_pytest_writes_a_test_that_fails_while_the_bug_is_there(poolproof, failing):
    poolproof("show", failing, "--as", "pytest", "-o", "test_bug.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_bug.py"]
    red = subprocess.run(command, capture_output=True, text=True, check=False)
    assert red.returncode == 1, red.stdout
    assert "answers with block 0" in red.stdout
    source = Path("buggy.py").read_text()
    Path("buggy.py").write_text(source.replace("        return taken", REPAIR, 1))
    green = subprocess.run(command, capture_output=True, text=True, check=False)
    assert green.returncode == 0, green.stdout


@pytest.mark.some(0)
def test_the_test_finds_its_target_wherever_pytest_is_started(poolproof, failing, tmp_path_factory):
    tests = Path("tests/regression")
    tests.mkdir(parents=True)
    poolproof("show", failing, "--as", "pytest", "-o", str(tests / "test_bug.py"))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests.resolve()]
    red = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere)
    assert red.returncode == 1, red.stdout
    assert "answers with block 0" in red.stdout


def test_a_test_of_a_built_in_target_goes_nowhere(poolproof, samples):
    write_trace(samples.trace(target="impl"), Path("t.jsonl"))
    poolproof("show", "t.jsonl", "--as", "pytest", "-o", "test_bug.py")
    assert "chdir" not in Path("test_bug.py").read_text()


def test_show_as_pytest_runs_no_code_out_of_a_trace(poolproof, samples):
    violation = samples.replace(
        samples.trace().violation, sentence="a\n'''\"\"\"\nimport os; os.abort()\n"
    )
    write_trace(
        samples.trace(violation=violation, target="x'\nraise SystemExit\n", fingerprint="f'\nx"),
        Path("t.jsonl"),
    )
    text = poolproof("show", "t.jsonl", "--as", "pytest").output
    names: dict[str, object] = {}
    exec(compile(text, "t.py", "exec"), names)  # noqa: S102 -- defining the test is harmless
    assert "test_idx_f_x" in names


def test_show_as_python_writes_a_script_without_poolproof(poolproof, failing):
    poolproof("show", failing, "--as", "python", "-o", "bug.py")
    text = Path("bug.py").read_text()
    assert "import poolproof" not in text
    assert "from poolproof" not in text
    red = subprocess.run([sys.executable, "bug.py"], capture_output=True, text=True, check=False)
    assert red.returncode == 1
    assert "AssertionError" in red.stderr


def test_the_script_compares_the_state_at_the_end(poolproof, samples, buggy):
    commands = (Allocate(1), Cache((0,), (HASH,)), Free((0,)), Allocate(1))
    made = samples.trace(
        target=buggy, profile=Profile(), num_blocks=1, commands=commands, violation=None
    )
    write_trace(made, Path("t.jsonl"))
    poolproof("show", "t.jsonl", "--as", "python", "-o", "bug.py")
    red = subprocess.run([sys.executable, "bug.py"], capture_output=True, text=True, check=False)
    assert "assert pool.lookup(a) is None" in red.stderr


def test_the_script_passes_on_a_pool_that_is_right(poolproof, failing):
    source = Path("buggy.py").read_text()
    Path("buggy.py").write_text(source.replace("        return taken", REPAIR, 1))
    poolproof("show", failing, "--as", "python", "-o", "bug.py")
    subprocess.run([sys.executable, "bug.py"], check=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "vllm"}, "vllm is not a class that a script can import"),
        ({"target": "a b.c:Pool"}, "a b.c is not the name of a module"),
        ({"commands": (CacheChain(TokenChain((1,)), (1,), 0, 0),)}, "without token chains"),
        ({"commands": (Free((1,)), Allocate(9), Free((2,)))}, None),
    ],
)
def test_show_as_python_says_where_it_cannot(poolproof, samples, changes, message):
    write_trace(samples.trace(**changes), Path("t.jsonl"))
    result = poolproof("show", "t.jsonl", "--as", "python")
    assert result.exit_code == (0 if message is None else 2)
    if message is not None:
        assert message in result.output
        assert "use --as pytest" in result.output


def test_show_does_not_need_the_target(poolproof, samples):
    write_trace(samples.trace(target="gone.py:Pool"), Path("t.jsonl"))
    assert poolproof("show", "t.jsonl").exit_code == 0


def test_replay_shows_the_violation(poolproof, failing):
    result = poolproof("replay", failing)
    assert result.exit_code == 1
    assert "answers with block 0" in result.output
    assert "> 4  allocate(2)" in result.output


def test_replay_in_process_says_the_same(poolproof, failing):
    assert poolproof("replay", failing, "--in-process").exit_code == 1


def test_replay_on_another_target_can_hold(poolproof, failing):
    result = poolproof("replay", failing, "--target", "impl[misuse=undefined]")
    assert result.exit_code == 0
    assert result.output.startswith("holds now: 6 commands of failing.jsonl show no violation\n")


def test_a_trace_that_records_no_violation_is_said_to_prove_nothing(poolproof, failing):
    lines = Path(failing).read_text().splitlines()
    whole = [line for line in lines if '"violation"' in line]
    Path("cut.jsonl").write_text("\n".join(line for line in lines if line not in whole))
    told = poolproof("replay", "cut.jsonl", "--target", "impl[misuse=undefined]")
    assert told.exit_code == 0
    assert "if it was cut, it proves nothing" in told.output


def test_replay_counts_what_it_left_out(poolproof, failing):
    lines = Path(failing).read_text().splitlines()
    lines.insert(1, json.dumps({"do": "evict", "block_ids": [0]}))
    Path(failing).write_text("\n".join(lines))
    result = poolproof("replay", failing)
    assert result.exit_code == 1
    assert "1 of 7 commands were left out" in result.output


def test_replay_says_when_it_is_another_violation(poolproof, failing):
    record = {"violation": {"invariant": "LEAK", "severity": "leak", "sentence": "x",
                            "blocks": [], "command_index": 1, "frames": []}}  # fmt: skip
    with Path(failing).open("a") as stream:
        stream.write(json.dumps(record) + "\n")
    result = poolproof("replay", failing)
    assert "note: the trace recorded LEAK, this is another one" in result.output


def test_a_hang_is_a_violation_of_the_command_in_progress(poolproof, failing):
    source = Path("buggy.py").read_text()
    Path("buggy.py").write_text(
        source.replace("return self.index.get(block_hash)", "while True: pass")
    )
    result = poolproof("replay", failing, "--call-timeout", "0.5")
    assert result.exit_code == 1
    assert "reading the pool after cache([0], [41f041f0]) did not return within 0.5 s" in (
        " ".join(result.output.split())
    )
    assert "> 2  cache([0], [a])" in result.output


def test_a_target_that_ends_the_process_is_a_violation(poolproof, failing):
    source = Path("buggy.py").read_text()
    Path("buggy.py").write_text(
        source.replace("        return self.index.get", "        import os; os._exit(3)\n        #")
    )
    result = poolproof("replay", failing)
    assert result.exit_code == 1
    assert "ended the process with exit status 3" in result.output


def test_shrink_writes_a_shorter_trace_that_still_fails(poolproof, failing):
    result = poolproof("shrink", failing, "-o", "small.jsonl")
    assert result.exit_code == 1
    assert "6 commands became 4" in result.output
    small = read_trace(Path("small.jsonl"))
    assert len(small.commands) == 4
    assert small.fingerprint is not None
    assert poolproof("replay", "small.jsonl").exit_code == 1


def test_shrink_without_a_file_writes_the_trace_to_the_output(poolproof, failing):
    result = poolproof("shrink", failing)
    assert json.loads(result.stdout.splitlines()[0])["format"] == "poolproof-trace"


def test_shrink_of_a_trace_that_holds_writes_nothing(poolproof, failing):
    result = poolproof("shrink", failing, "--target", "impl[misuse=undefined]", "-o", "small.jsonl")
    assert result.exit_code == 0
    assert "holds now" in result.output
    assert not Path("small.jsonl").exists()


def test_shrink_minimises_a_hang(poolproof, failing):
    source = Path("buggy.py").read_text()
    Path("buggy.py").write_text(
        source.replace(
            "            self.counts[block] -= 1",
            "            self.counts[block] -= 1\n            while self.index: pass",
        )
    )
    result = poolproof("shrink", failing, "-o", "small.jsonl", "--call-timeout", "0.3")
    assert result.exit_code == 1
    assert "did not return within 0.3 s" in result.output
    verbs = [command.verb for command in read_trace(Path("small.jsonl")).commands]
    assert verbs == ["allocate", "cache", "free"]


@pytest.mark.parametrize("verb", ["show", "replay", "shrink"])
def test_an_empty_name_is_no_trace_and_no_folder(poolproof, verb):
    CampaignFolder(Path(), CampaignSettings("impl", "pool", 3)).close()
    result = poolproof(verb, "")
    assert result.exit_code == 2
    assert "TRACE is empty (is a variable unset?)" in result.output


@pytest.mark.parametrize("verb", ["show", "replay", "shrink"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read trace t.jsonl: No such file or directory"),
        ("", "t.jsonl is not a trace: it is empty"),
        ('{"format": "other"}', 't.jsonl is not a trace: line 1 lacks "format"'),
        ('{"format": "poolproof-trace", "version": 9}', "upgrade Poolproof to read it"),
        ('{"format": "poolproof-tr', "t.jsonl line 1 is not JSON"),
        ("\0\1\2", "t.jsonl line 1 is not JSON"),
    ],
)
def test_a_file_that_is_no_trace_is_explained(poolproof, verb, text, message):
    if text is not None:
        Path("t.jsonl").write_text(text)
    result = poolproof(verb, "t.jsonl")
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.splitlines()) == 1


def test_a_trace_with_a_negative_size_is_explained(poolproof, samples):
    write_trace(samples.trace(), Path("t.jsonl"))
    damaged = Path("t.jsonl").read_text().replace('"num_blocks": 4', '"num_blocks": -4')
    Path("t.jsonl").write_text(damaged)
    result = poolproof("replay", "t.jsonl")
    assert (result.exit_code, "num_blocks must be 1 or more, not -4" in result.output) == (2, True)


def test_a_trace_of_another_level_is_explained(poolproof, samples):
    write_trace(samples.trace(target="reference-queue"), Path("t.jsonl"))
    result = poolproof("replay", "t.jsonl")
    assert result.exit_code == 2
    assert "the trace is of level pool, but reference-queue is a queue target" in result.output


def test_a_trace_of_chains_on_a_target_without_them_is_explained(poolproof, samples, buggy):
    chain = CacheChain(TokenChain((1,)), (1,), 0, 0)
    write_trace(samples.trace(target=buggy, commands=(Allocate(1), chain)), Path("t.jsonl"))
    result = poolproof("replay", "t.jsonl")
    assert result.exit_code == 2
    assert "the trace speaks token chains, which buggy.py:Pool does not take" in result.output


def test_an_unwritable_output_is_found_before_the_trace_is_run(poolproof, failing):
    result = poolproof("shrink", failing, "-o", "none/small.jsonl")
    assert result.exit_code == 2
    assert "cannot write none/small.jsonl: there is no folder none" in result.output


@pytest.fixture
def left_first(samples, folder):
    """A trace of a pool that takes first what was freed last, judged as if it took the oldest."""
    made = samples.trace(
        target="impl[eviction=lifo]",
        profile=Profile(),
        num_blocks=3,
        commands=(Allocate(1), Free((0,)), Allocate(1)),
        violation=None,
        fingerprint=None,
    )
    write_trace(made, folder / "left.jsonl")
    return "left.jsonl"


def test_a_trace_is_judged_by_another_profile(poolproof, left_first):
    by_its_own = poolproof("replay", left_first)
    assert by_its_own.exit_code == 1
    assert "note:" not in by_its_own.output
    by_another = poolproof("replay", left_first, "--profile", "eviction=lifo")
    assert by_another.exit_code == 0
    assert "left.jsonl show no violation, judged by eviction=lifo" in by_another.output
    still = poolproof("replay", left_first, "--profile", "recache=forbidden")
    assert still.exit_code == 1
    assert "note: it fails, judged by recache=forbidden" in still.output


def test_a_trace_is_shrunk_as_another_profile_judges_it(poolproof, left_first):
    assert poolproof("shrink", left_first, "--profile", "eviction=lifo").exit_code == 0
    small = poolproof("shrink", left_first, "--profile", "retention=may-drop", "-o", "small.jsonl")
    assert small.exit_code == 1
    assert read_trace(Path("small.jsonl")).profile.retention == "may-drop"
    assert poolproof("replay", "small.jsonl").exit_code == 1


@pytest.mark.parametrize("command", ["replay", "shrink"])
@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("eviction", "'eviction' is not KEY=VALUE, such as eviction=lifo"),
        ("eviction=newest", "profile key 'eviction' must be one of"),
        ("evict=lifo", "unknown profile key 'evict'; known are"),
        ("block_size=16", "a trace keeps its blocks of 1 tokens; leave out block_size"),
        ("patch=fix.diff", "patch is no row of a profile"),
        ("null_block=3", "the trace has blocks 0 to 2, of which none is null_block 3; name one"),
    ],
)
def test_a_row_that_cannot_be_is_one_line(poolproof, left_first, command, row, says):
    result = poolproof(command, left_first, "--profile", row)
    assert result.exit_code == 2
    assert says in result.output
    assert "Traceback" not in result.output
