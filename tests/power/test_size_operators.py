"""Mutants that are right in small: where they are made, and that production sizes refuse them."""

import ast
from pathlib import Path

from poolproof.power.mutation import Source
from poolproof.power.operators import SIZES, size_edits, size_statement_edits

TEXT = """
def take(self, wanted, block_id):
    self.count += wanted
    names = self.names[:wanted]
    if wanted < len(self.free) and self.references[block_id] == 0:
        return names + [part for part in range(wanted)]
    self.free += [block_id]
"""


def edits():
    source = Source("m", Path("m.py"), TEXT.encode())
    found = []
    for node in ast.walk(ast.parse(TEXT)):
        if isinstance(node, ast.stmt):
            found += size_statement_edits(node, source)
        found += size_edits(node, source)
    return [
        (edit.operator, TEXT[edit.start : edit.end], edit.text)
        for edit in found
        if edit.operator.endswith(f" {SIZES[0]}")
    ]


def test_numbers_by_their_form_wrap_and_stop_and_nothing_else_does():
    assert sorted(set(edits())) == sorted(
        [
            (
                "sum wraps at 16",
                "self.count += wanted",
                "self.count = (self.count + (wanted)) % 16",
            ),
            *(
                each
                for text in ("wanted", "len(self.free)", "block_id", "self.references[block_id]")
                for each in (
                    ("wraps at 16", text, f"(({text}) % 16)"),
                    ("stops at 16", text, f"min({text}, 16)"),
                )
            ),
        ]
    )


def test_every_size_is_made():
    source = Source("m", Path("m.py"), b"x = len(y)\n")
    (node,) = (n for n in ast.walk(ast.parse("x = len(y)\n")) if isinstance(n, ast.Call))
    made = [edit.operator for edit in size_edits(node, source)]
    assert made == [f"{how} at {size}" for size in SIZES for how in ("wraps", "stops")]
