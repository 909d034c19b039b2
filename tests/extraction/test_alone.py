"""Vectors of a folder of pictures and of texts, without splits: `vsehub extract images= texts=`."""

import re

import numpy as np
import photo_files
import pyarrow.parquet as pq
import pytest
import torch
from tiny_towers import tiny_hf

from vsehub.checks import InputError
from vsehub.extraction.layouts import read_texts
from vsehub.models.zero_shot import ZeroShot


def test_pictures_and_texts_in_one_space(run_here, tmp_path):
    """The vectors are the model's, the ids the names, and the command that is printed runs."""
    folder, photos = tiny_hf(tmp_path / "clip"), tmp_path / "photos"
    (photos / "below").mkdir(parents=True)
    for number, name in enumerate(("b.png", "a.png", "below/c.png", "d.png")):
        (photos / name).write_bytes(photo_files.picture(number))
    (tmp_path / "texts.csv").write_text("id,n,text\nx,1,a red box\ny,2,two big circle\nz,3,the small green box\n")
    model = ("image_encoder=hf", f"image_encoder.model={folder}")
    said = run_here("extract", *model, f"images={photos}", "out=pictures")
    table = pq.read_table(tmp_path / "pictures" / "images.parquet")
    zero_shot = ZeroShot(f"hf:{folder}", None)
    images = zero_shot.use_folder(photos).images
    assert table["id"].to_pylist() == ["a.png", "b.png", "below/c.png", "d.png"]
    wanted = torch.nn.functional.normalize(zero_shot.encode_images(images[np.arange(4)]), dim=1)
    torch.testing.assert_close(torch.tensor(table["vector"].to_pylist()), wanted, rtol=1e-4, atol=1e-5)
    run_here(*re.search("vsehub (diagnose .*)", said)[1].split())  # each picture among the others
    said = run_here("extract", *model, f"images={photos}", "texts=texts.csv::text", "prompt='photo of {}'", "out=both")
    texts = pq.read_table(tmp_path / "both" / "texts.parquet")
    wanted = torch.nn.functional.normalize(zero_shot.encode_texts(["photo of two big circle"]), dim=1)
    torch.testing.assert_close(torch.tensor(texts["vector"].to_pylist())[1:2], wanted, rtol=1e-4, atol=1e-5)
    assert texts["id"].to_pylist() == ["x", "y", "z"]
    assert "3 queries, 4 items" in run_here(*re.search("vsehub (diagnose .*)", said)[1].split(), "overwrite=true")


@pytest.mark.parametrize(
    ("text", "column", "named"),
    [
        ("id,a,b\n1,x,y\n", "", "COLUMN"),
        ("id,a\n1,x\n1,y\n", "", "twice"),
        ("id,a\n1,x\n2,\n", "", "without a text"),
        ("id,a\n1,x\n", "::c", "COLUMN"),
    ],
)
def test_texts_that_are_refused(tmp_path, text, column, named):
    (tmp_path / "texts.csv").write_text(text)
    with pytest.raises(InputError, match=named):
        read_texts(f"{tmp_path / 'texts.csv'}{column}")
