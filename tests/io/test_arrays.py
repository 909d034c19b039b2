"""Headers of .npy files, which numpy reads as Python literals."""

import zipfile

import pytest

from vsehub.checks import InputError
from vsehub.data import open_vectors
from vsehub.data.precomp import open_features

HEADERS = [
    "__import__('os').system('touch here')",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2 * 4)}",
    "[" * 4000,
    "-" * 9000 + "1",
    "{1: " * 2000,
    "(" * 100_000,
    "",
]


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header[:12])
def test_a_header_that_is_no_plain_literal_is_refused_and_runs_nothing(tmp_path, header, monkeypatch):
    monkeypatch.chdir(tmp_path)
    version = 2 if len(header) > 65535 else 1
    length = len(header).to_bytes(2 * version, "little")
    content = b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + bytes(64)
    (tmp_path / "x.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", content)
    for read, name in ((open_vectors, "x.npy"), (open_vectors, "x.npz"), (open_features, "x.npy")):
        with pytest.raises(InputError, match=name) as raised:
            read(tmp_path / name)
        assert "\n" not in str(raised.value)
    assert not (tmp_path / "here").exists()
