"""The manual against the code: links, commands, options, profiles, invariants, examples."""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from poolproof.certification.known_findings import read_known_findings
from poolproof.cli.command_line import main
from poolproof.contract import profile as profile_module
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity
from poolproof.invariants.catalogue import STATEMENTS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = main.list_commands(click.Context(main))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """What stands under a heading of a page, up to the next heading of its level."""
    _, _, rest = text_of(ROOT / page).partition(f"\n## {heading}\n")
    assert rest, f"{page} has no section {heading!r}"
    return rest.partition("\n## ")[0]


def blocks_of(text: str) -> list[tuple[str, str]]:
    """The code blocks of a text, each behind the name of its language."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def fenced(text: str, language: str = "") -> list[str]:
    """The code blocks of a language in a text."""
    return [content for name, content in blocks_of(text) if name == language]


def command_lines(text: str) -> list[str]:
    """Lines of a page that call something: in code blocks, and between backticks."""
    joined = [block.replace("\\\n", " ") for _, block in blocks_of(text)]
    lines = [line.strip() for block in joined for line in block.splitlines()]
    return lines + re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{page.name} links to {link}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", text_of(place), re.MULTILINE)
            assert anchor in map(slug, headings), f"{page.name} links to {link}"


def test_generated_blocks_are_up_to_date() -> None:
    command = [sys.executable, "generators/generate.py", "--check"]
    checked = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_picture_of_recorded_curves_is_up_to_date() -> None:
    """The others are drawn by runs of minutes; .ci/run compares them."""
    command = [sys.executable, "generators/make_pictures.py", "survival", "--check"]
    checked = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_picture_is_drawn_by_the_command_that_compares_it() -> None:
    script = text_of(ROOT / "generators" / "make_pictures.py")
    for picture in (ROOT / "docs" / "pictures").glob("*.svg"):
        assert f'"{picture.stem}": ' in script, picture.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    for line in command_lines(text_of(page)):
        called = re.search(r"(?:^|[ /])poolproof (?P<name>[a-z]+)\b(?P<rest>.*)", line)
        if called is None:
            continue
        assert called["name"] in COMMANDS, f"{page.name}: {line}"
        command = main.get_command(click.Context(main), called["name"])
        assert command is not None
        known = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
        for option in re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", called["rest"].partition("#")[0]):
            assert option in known, f"{page.name}: {line} has no {option}"


def test_every_option_of_certify_is_in_its_page() -> None:
    command = main.get_command(click.Context(main), "certify")
    assert command is not None
    page = text_of(ROOT / "docs" / "certify.md")
    options = [o for p in command.params if isinstance(p, click.Option) for o in p.opts]
    assert [option for option in options if option not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_named_alone_exist(page: Path) -> None:
    known = {
        "--check",
        "--help",
        "--record",
        "--strict",
        "--lf",
    }  # of generators/generate.py, benchmarks/, mypy, pytest
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        grouped = command.commands.values() if isinstance(command, click.Group) else ()
        known.update(o for one in (command, *grouped) for p in one.params for o in p.opts)
    for option in re.findall(r"`(--[a-z-]+)[^`]*`", text_of(page)):
        assert option in known, f"{page.name} speaks of {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    makefile = text_of(ROOT / "Makefile")
    for line in command_lines(text_of(page)):
        for target in re.findall(r"(?:^|&& )make ([a-z-]+)", line):
            assert re.search(rf"^{target}[ :]", makefile, re.MULTILINE), f"{page.name}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    # A report folder of users holds XML; ours holds none.
    folders = "|".join(path.name for path in ROOT.iterdir() if any(path.glob("*.py")))
    for name in re.findall(rf"(?<![\w/.])((?:{folders})/[\w/.]+\.(?!xml)\w+)", text_of(page)):
        assert (ROOT / name).is_file(), f"{page.name} names {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_in_python_are_python(page: Path) -> None:
    for block in fenced(text_of(page), "python"):
        ast.parse(block)


def test_the_readme_says_what_it_is_installs_and_finds_before_its_first_picture() -> None:
    first_screen, _, _ = text_of(ROOT / "README.md").partition("![")
    assert "pip install ." in first_screen
    assert "poolproof certify examples/stale_index.py:Pool" in first_screen
    assert len(first_screen.splitlines()) <= 40


def test_the_readme_shows_the_example_as_it_is() -> None:
    example = text_of(ROOT / "examples" / "stale_index.py")
    assert example in fenced(text_of(ROOT / "README.md"), "python")


def test_the_readme_shows_what_the_example_gives(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    readme = text_of(ROOT / "README.md")
    command, shown = fenced(readme)[:2]
    arguments = shlex.split(command)
    assert arguments.pop(0) == "poolproof"
    run = subprocess.run(
        [sys.executable, "-m", "poolproof", *arguments, "--workers", "1"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert shown in run.stdout, run.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/certify.md"])
def test_exit_statuses_are_the_same_everywhere(page: str) -> None:
    text = " ".join(text_of(ROOT / page).split())
    assert re.search(r"0(: holds|\W+HOLDS)", text)
    assert re.search(r"1(: a violation was found|\W+REFUSED)", text)
    assert re.search(r"2(: the run could not be carried out|\W+INCONCLUSIVE)", text)


def test_the_profile_table_is_the_code_s() -> None:
    documented: dict[str, list[str]] = {}
    row = ""
    for first, second in re.findall(
        r"^\| *(`\w+`)? *\| *([^|]+?) *\|", section("docs/contract.md", "Profile"), re.MULTILINE
    ):
        row = first.strip("`") or row
        if row and second.startswith(("`", "an id", "a number")):
            documented.setdefault(row, []).append(second.strip("`"))
    in_code = {name: list(values) for name, values in profile_module._CHOICES.items()}
    for row in ("keys", "hash_bytes"):
        in_code[row].append("a number")
    in_code["null_block"] = ["None", "an id"]
    assert documented == in_code


def test_the_first_value_of_a_row_is_its_default() -> None:
    for field in dataclasses.fields(Profile):
        if field.name in profile_module._CHOICES:
            assert field.default == profile_module._CHOICES[field.name][0]


def test_every_invariant_has_its_section() -> None:
    page = text_of(ROOT / "docs" / "invariants.md")
    headings = re.findall(r"^## ([A-Z0-9]+)$", page, re.MULTILINE)
    assert headings == list(STATEMENTS)


def test_severities_on_the_page_are_the_code_s() -> None:
    named = re.findall(
        r"^\| `([a-z-]+)` \|", section("docs/certify.md", "Severities"), re.MULTILINE
    )
    assert named == [severity.value for severity in Severity]


def test_the_known_file_of_the_manual_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "known.toml"
    path.write_text(fenced(section("docs/certify.md", "Known findings"), "toml")[0])
    assert len(read_known_findings(path).entries) == 1


def test_the_trace_of_the_manual_still_fails(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "stale_index.py", tmp_path)
    path = tmp_path / "trace.jsonl"
    path.write_text(fenced(section("docs/traces.md", "The file"), "json")[0])
    command = [sys.executable, "-m", "poolproof", "replay", path.name, "--in-process"]
    replayed = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr
    assert "f-6d5f7fee" in replayed.stdout
