"""Headers of .npy files, which numpy reads as Python literals."""

import io
import zipfile

import numpy as np
import pytest

from vsehub.checks import InputError
from vsehub.data.precomp import open_features
from vsehub.data.vectors.formats import read_npy, read_npz
from vsehub.io.arrays import NpyHeader, load_archive, load_array


def npy(header: str, version: int = 2) -> bytes:
    """A file with that header."""
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header.encode() + bytes(64)


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
def test_one_line_of_ours_for_a_header_that_is_none(tmp_path, header):
    version = 2 if len(header) > 65535 else 1
    (tmp_path / "x.npy").write_bytes(npy(header, version))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", npy(header, version))
    for read, name in ((read_npy, "x.npy"), (read_npz, "x.npz")):
        with pytest.raises(InputError, match=r"\((the header .*)\)") as raised:
            read(tmp_path / name, None)
        assert "pickle" not in str(raised.value)
        assert "\n" not in str(raised.value)
    for read, name in ((load_array, "x.npy"), (load_archive, "x.npz"), (open_features, "x.npy")):
        with pytest.raises(ValueError, match="the header") as raised:
            read(tmp_path / name)
        assert "allow_pickle" not in str(raised.value)
        assert "\n" not in str(raised.value)
    assert not (tmp_path / "here").exists()


def test_headers_of_numpy_are_read():
    for array in (np.zeros((3, 4), np.float16), np.zeros((5,), "<U9"), np.asfortranarray(np.ones((2, 3)))):
        file = io.BytesIO()
        np.save(file, array)
        file.seek(0)
        header = NpyHeader.read(file)
        assert (header.shape, header.dtype) == (array.shape, array.dtype)
        assert file.read() == array.tobytes("A")
