"""Checks: each looks at a target with one case and says what it compared and what was wrong."""
