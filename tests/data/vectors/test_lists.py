"""Vectors as tensors of torch, and as lists in lines and cells: what is read, and what is refused with its line."""

import json
import os
import pickle
import re

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.data.vectors.embeddings import look_through, open_vectors

MATRIX = np.random.default_rng(0).normal(size=(9000, 3)).astype(np.float32)
IDS = [f"a {row}, b" for row in range(len(MATRIX))]


def same(vectors, ids=None, wanted=MATRIX):
    assert torch.equal(vectors.rows(0, len(vectors)), torch.from_numpy(wanted))
    assert vectors.ids == ids


def test_tensors(tmp_path):
    for kind in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        tensor = torch.from_numpy(MATRIX).to(kind)
        torch.save(tensor, tmp_path / "v.pt")
        torch.save({"text": tensor[:5], "image": tensor}, tmp_path / "v.pth")
        same(open_vectors(tmp_path / "v.pt"), wanted=tensor.float().numpy())
        same(open_vectors(f"{tmp_path / 'v.pth'}::image"), wanted=tensor.float().numpy())
    torch.save(torch.from_numpy(MATRIX), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    same(open_vectors(tmp_path / "old.pt"))
    torch.save(torch.nn.Parameter(torch.from_numpy(MATRIX)), tmp_path / "v.pt")
    same(open_vectors(tmp_path / "v.pt"))


class Harm:
    """A pickle of this creates a folder when it is read."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_tensor_files_that_will_not_do(tmp_path):
    harm = tmp_path / "harm"
    wide = torch.as_strided(torch.zeros(1), (1 << 40, 4), (0, 0))
    for value, message in (
        (Harm(str(harm)), "v.pt is damaged, or holds more than tensors, which could run code"),
        ({"a": torch.zeros(2, 2), "b": Harm(str(harm))}, "holds more than tensors"),
        (torch.nn.Linear(2, 2), "holds more than tensors"),
        ([torch.zeros(2, 2)], "holds list; expected a tensor or a dictionary of tensors"),
        ({"a": 1}, "holds dict; expected a tensor"),
        ({"a": torch.zeros(2, 2), "b": torch.zeros(2, 2)}, r"has 2 matrices of floats; .* as in v.pt::a"),
        (torch.zeros(2), r"v.pt has shape \(2,\)"),
        (torch.zeros(2, 2).long(), "holds int64; expected one of"),
        (torch.eye(3).to_sparse(), "is sparse or a view"),
        (wide, "is sparse or a view of other numbers"),
    ):
        torch.save(value, tmp_path / "v.pt")
        with pytest.raises(InputError, match=message):
            open_vectors(tmp_path / "v.pt")
    torch.save(torch.zeros(2, 2), tmp_path / "v.pt")
    with pytest.raises(InputError, match="is one tensor without a name; remove '::x'"):
        open_vectors(f"{tmp_path / 'v.pt'}::x")
    whole = (tmp_path / "v.pt").read_bytes()
    for content in (pickle.dumps(Harm(str(harm))), whole[:200], whole[:-30], b"\x80\x02garbage", b"x"):
        (tmp_path / "v.pt").write_bytes(content)
        with pytest.raises(InputError, match="is damaged, or holds more than tensors"):
            open_vectors(tmp_path / "v.pt")
    assert not harm.exists()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", ["meta", "nested", "negative"])
def test_tensors_that_numpy_does_not_take(tmp_path, kind):
    tensor = {
        "meta": lambda: {"a": torch.zeros(2, 3, device="meta")},
        "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
        "negative": lambda: torch._neg_view(torch.zeros(2, 3)),
    }[kind]()
    torch.save(tensor, tmp_path / "v.pt")
    with pytest.raises(InputError, match=r"v\.pt"):
        open_vectors(tmp_path / "v.pt")


def test_lists_in_lines(tmp_path):
    rows = [row.tolist() for row in MATRIX]
    objects = [{"id": one, "words": "x", "vector": row} for one, row in zip(IDS, rows, strict=True)]
    two = [{"text": row[:1], "image": row} for row in rows]
    for lines, key, ids in ((rows, "", None), (objects, "", IDS), (objects, "::vector", IDS), (two, "::image", None)):
        (tmp_path / "v.jsonl").write_text("\n\n".join(map(json.dumps, lines)))
        same(open_vectors(f"{tmp_path / 'v.jsonl'}{key}"), ids)
    (tmp_path / "v.jsonl").write_bytes(b'\xef\xbb\xbf{"id": 7, "v": [1, 2.5]}\r\n{"id": 8, "v": [NaN, 3]}\r\n')
    found = open_vectors(tmp_path / "v.jsonl")
    assert found.ids == ["7", "8"]
    with pytest.raises(InputError, match="row 1 holds NaN"):
        look_through(found)


def test_lists_in_cells(tmp_path):
    for separator, gap in ((",", ", "), (";", ", "), ("\t", " ")):
        lines = [
            f'"{one}"{separator}"[{gap.join(map(str, row.tolist()))}]"' for one, row in zip(IDS, MATRIX, strict=True)
        ]
        (tmp_path / "v.csv").write_text("\n".join([f"id{separator}vector", *lines]))
        same(open_vectors(tmp_path / "v.csv"), IDS)
    np.set_printoptions(threshold=10**6)
    (tmp_path / "v.csv").write_text(f'name,vector\na,"{np.arange(300.0)}"\n')  # with line breaks, as pandas writes it
    assert open_vectors(tmp_path / "v.csv").rows(0, 1)[0].tolist() == list(range(300))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("v.jsonl", "[1, 2]\n[1]\n", ":2: 1 numbers; expected 2"),
        ("v.jsonl", "[1, 2]\n{\n", ":2: no JSON"),
        ("v.jsonl", "[1, 2]\n3\n", ":2: '3'; expected a list of numbers"),
        ("v.jsonl", '[1, "2"]\n', ":1: texts in a list"),
        ("v.jsonl", '[1, "nan"]\n', ":1: texts in a list"),
        ("v.jsonl", "[1, true]\n", ":1: 'True' is not a number"),
        ("v.jsonl", "[1, null]\n", ":1: 'None' is not a number"),
        ("v.jsonl", "[1, [2]]\n", r":1: '\[2\]' is not a number"),
        ("v.jsonl", f"[1, {10**400}]\n", ":1: '1000000.*' is not a number"),
        ("v.jsonl", "[]\n", ":1: it is no list"),
        ("v.jsonl", "\n\n", "has no rows; expected a list of numbers"),
        ("v.jsonl", '{"a": [1], "b": [2]}\n', "has 2 lists in a row .a, b.; expected one, or its name .* v.jsonl::a"),
        ("v.jsonl", '{"id": "x"}\n', "has 0 lists in a row .none."),
        ("v.jsonl", '{"id": "x", "v": [1]}\n{"v": [1]}\n', ":2: some rows have an id and others none"),
        ("v.jsonl", '{"v": [1]}\n{"id": "x", "v": [1]}\n', ":2: some rows have an id and others none"),
        ("v.jsonl", '{"id": "x", "v": [1]}\n{"id": "x", "v": [1]}\n', "'x' comes twice"),
        ("v.jsonl", '{"v": [1]}\n{"w": [1]}\n', ":2: v is no list"),
        ("v.jsonl", "[" * 100_000, ":1: no JSON"),
        ("v.csv", 'id,v\na,"[1, x]"\n', ":2: 'x' is not a number"),
        ("v.csv", 'id,v\na,"[1 ... 2]"\n', ":2: '...' is not a number"),
        ("v.csv", 'id,v\na,"[1, 2]"\nb,3\n', ":3: '3' is no list of numbers"),
        ("v.csv", 'id,v\na,"[1, 2]"\nb,[]\n', ":3: the list is empty"),
        ("v.csv", 'id,v\na,"[1, 2]"\nb\n', ":3: 1 entries; expected 2"),
        ("v.csv", 'v,w\n"[1, 2]","[1]"\n', "has 2 lists in a row"),
    ],
)
def test_lists_that_will_not_do(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as said:
        open_vectors(tmp_path / name)
    assert re.search(message, str(said.value)), said.value
