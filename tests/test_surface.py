"""What users may rely on changes only when that is announced."""

import difflib

import surface


def test_what_users_rely_on_is_as_announced():
    stored = surface.STORED.read_text().splitlines()
    changes = [line for line in difflib.unified_diff(stored, surface.lines(), "announced", "now", lineterm="", n=0)]
    assert not changes, (
        "what users may rely on has changed; announce it in CHANGELOG.md as docs/stability.md says, then run "
        "python tests/surface.py\n" + "\n".join(changes)
    )
