"""A badge made from a certificate: its verdict and depth, as a small picture for a README."""

from __future__ import annotations

from xml.sax.saxutils import escape

from poolproof.certification.certificate import Certificate, Verdict
from poolproof.certification.verdict import failing
from poolproof.contract.outside import printable

__all__ = ["badge"]

_COLOURS = {Verdict.HOLDS: "#2e7d32", Verdict.REFUSED: "#c62828", Verdict.INCONCLUSIVE: "#616161"}
_LABEL = "poolproof"
_LETTER = 6.6
"""The width of a letter at 11 px, in px; a text is stretched to what is computed from it."""


def badge(certificate: Certificate) -> str:
    """An SVG picture, readable without its colours and by screen readers."""
    verdict = certificate.verdict or Verdict.INCONCLUSIVE
    number = len(failing(certificate))
    words = f"{verdict.value}, {certificate.depth}"
    if verdict is Verdict.REFUSED:
        words = f"{verdict.value}, {number} finding{'s' * (number != 1)}"
    left, right = (round(len(text) * _LETTER) + 12 for text in (_LABEL, words))
    title = escape(f"{_LABEL}: {words} ({printable(certificate.target)})")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">\n'
        f"<title>{title}</title>\n"
        f'<rect width="{left + right}" height="20" rx="3" fill="{_COLOURS[verdict]}"/>\n'
        f'<path d="M3 0h{left - 3}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#444"/>\n'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">\n'
        f"{_text(_LABEL, 6, left - 12)}\n{_text(words, left + 6, right - 12)}\n</g>\n</svg>\n"
    )


def _text(words: str, x: int, width: int) -> str:
    return f'<text x="{x}" y="14" textLength="{width}">{escape(words)}</text>'
