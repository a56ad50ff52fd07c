"""What the words of SQLite mean to somebody who has only a folder."""

import sqlite3
from pathlib import Path

import pytest

from poolproof.fuzz.folder_tables import explanation


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("database or disk is full", "make room and start the same command again"),
        ("attempt to write a readonly database", "name another --folder"),
        ("unable to open database file", "copy the folder to a place where something may"),
        ("database disk image is malformed", "cannot be used: database disk image is malformed"),
    ],
)
def test_an_error_of_the_database_says_what_to_do(said, told):
    assert told in explanation(Path("campaign"), sqlite3.OperationalError(said))


def test_a_campaign_without_a_folder_is_in_memory():
    told = explanation(None, sqlite3.OperationalError("database or disk is full"))
    assert told.startswith("the campaign's memory: ")
