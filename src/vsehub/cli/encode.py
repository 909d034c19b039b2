"""`vsehub encode`: vectors of other models as a checkpoint that was trained on such vectors encodes them, as files."""

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import require, whole
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.evaluation.hub import checkpoint_file
from vsehub.io.files import Output

if TYPE_CHECKING:
    from vsehub.data.vectors.embeddings import VectorFile
    from vsehub.evaluation.trained import TrainedModel

SIDES = ("images", "texts")
KIND = "encoded vectors"


def encode(cfg: DictConfig) -> None:
    """Encode `cfg.images` and `cfg.texts` with a checkpoint, and write unit vectors to the folder `cfg.out`."""
    checkpoint = checkpoint_file(cfg.checkpoint)
    given = {side: str(cfg[side]) for side in SIDES if cfg[side] is not None}
    require(bool(given), "there is nothing to encode; give images=FILE, texts=FILE or both")
    whole("eval_batch_size", cfg.eval_batch_size)
    for side, path in given.items():
        require_vectors(side, split_path(path)[0])
    output = Output(cfg.out, KIND, [f"{side}.npy" for side in given], cfg.overwrite)

    from vsehub.cli.nodes import components
    from vsehub.data.vectors.embeddings import look_through, open_vectors
    from vsehub.evaluation.trained import TrainedModel
    from vsehub.io.files import write_text

    model = TrainedModel(checkpoint, components(cfg.trust), batch_size=cfg.eval_batch_size)
    files = {side: open_vectors(path, side, normalize=False) for side, path in given.items()}
    require(
        model.similarity.inner_product,
        f"checkpoint: the scores of {type(model.similarity).__name__} in {model.path} are no inner products of vectors",
    )
    for side, vectors in files.items():
        shape = model.model.image_shape if side == "images" else model.model.text_shape
        require(
            vectors.shape[1:] == shape,
            f"{vectors} has vectors of {vectors.shape[1]} numbers, but {model.path} was trained on {side} of shape "
            f"{shape}, or on captions (None); encode pictures and captions from Python: vsehub.load",
        )
        look_through(vectors)
    ids = {side: f"{side.removesuffix('s')}_ids.txt" for side, vectors in files.items() if vectors.ids is not None}
    output.begin([*(f"{side}.npy" for side in files), *ids.values()])
    for side, vectors in files.items():
        dim = write_encoded(model, side, vectors, output / f"{side}.npy")
        if side in ids:
            write_text(output / ids[side], "".join(f"{one}\n" for one in vectors.ids or ()))
        print(f"{side}: {len(vectors):,} unit vectors of {dim} numbers in {output / f'{side}.npy'}")
    output.finish()


def write_encoded(model: "TrainedModel", side: str, vectors: "VectorFile", path: Path) -> int:
    """Write the encoded rows of a file to a .npy, block by block: unit vectors, float32. Returns their dimension."""
    import numpy as np

    from vsehub.io.files import atomic

    encode_rows = model.encode_images if side == "images" else model.encode_texts
    dim = 0
    with atomic(path) as handle:
        for first, rows in vectors.blocks():
            block = model.similarity.vectors(encode_rows(rows)).float().cpu().numpy()
            if first == 0:
                dim = block.shape[1]
                header = {"descr": "<f4", "fortran_order": False, "shape": (len(vectors), dim)}
                np.lib.format.write_array_header_1_0(handle, header)
            handle.write(block.astype("<f4").tobytes())
    return dim
