"""Make tests/report/screens/blocks.ttf: a font in which every character is the same block.

Each machine has other fonts, and a page that is shown in one of them looks the same on no two. In
this one only what a page does itself is left: lines, columns, boxes and colours. The tests of
browsers have such a font too, Ahem.

    python generators/make_block_font.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from fontTools.ttLib.tables._c_m_a_p import CmapSubtable
from fontTools.ttLib.tables._g_l_y_f import Glyph

FILE = Path(__file__).parents[1] / "tests" / "report" / "screens" / "blocks.ttf"

# In units of a thousandth of the size of the text.
ADVANCE, LEFT, RIGHT, TOP, BOTTOM = 500, 40, 460, 500, 0
ASCENT, DESCENT = 800, 200
SPACES = (0x20, 0xA0)
SURROGATES = range(0xD800, 0xE000)


def main() -> None:
    """Write the font."""
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder([".notdef", "space", "block"])
    empty = TTGlyphPen(None).glyph()
    builder.setupGlyf({".notdef": _block(), "space": empty, "block": _block()})
    builder.setupHorizontalMetrics(
        {".notdef": (ADVANCE, LEFT), "space": (ADVANCE, 0), "block": (ADVANCE, LEFT)}
    )
    builder.setupHorizontalHeader(ascent=ASCENT, descent=-DESCENT)
    builder.setupCharacterMap(_glyphs(range(0x20, 0x7F)))
    # Format 13 has one line for a whole range of characters that look alike.
    every = CmapSubtable.newSubtable(13)
    every.platformID, every.platEncID, every.language = 3, 10, 0
    every.cmap = _glyphs(code for code in range(0x20, 0x20000) if code not in SURROGATES)
    builder.font["cmap"].tables.append(every)
    builder.setupNameTable({"familyName": "Poolproof Blocks", "styleName": "Regular"})
    builder.setupOS2(
        sTypoAscender=ASCENT, sTypoDescender=-DESCENT, usWinAscent=ASCENT, usWinDescent=DESCENT
    )
    builder.setupPost()
    # The same bytes whenever it is made.
    builder.font["head"].created = builder.font["head"].modified = 0
    builder.font.recalcTimestamp = False
    builder.save(FILE)


def _block() -> Glyph:
    pen = TTGlyphPen(None)
    pen.moveTo((LEFT, BOTTOM))
    for corner in ((LEFT, TOP), (RIGHT, TOP), (RIGHT, BOTTOM)):
        pen.lineTo(corner)
    pen.closePath()
    return pen.glyph()


def _glyphs(codes: Iterable[int]) -> dict[int, str]:
    return {code: "space" if code in SPACES else "block" for code in codes}


if __name__ == "__main__":
    main()
