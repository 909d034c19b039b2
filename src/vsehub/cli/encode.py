"""`vsehub encode`: encode files of vectors with a checkpoint that was trained on vectors of the same model."""

from omegaconf import DictConfig

from vsehub.checks import require
from vsehub.io.files import Output, write_text
from vsehub.models.hub import checkpoint_file


def encode(cfg: DictConfig) -> None:
    """Encode `cfg.images` and `cfg.texts` with a checkpoint, and write unit vectors to the folder `cfg.out`."""
    checkpoint = checkpoint_file(cfg.checkpoint)
    paths = {side: str(cfg[side]) for side in ("images", "texts") if cfg[side] is not None}
    require(bool(paths), "there is nothing to encode; give images=FILE, texts=FILE or both")
    names = [f"{side}.npy" for side in paths] + [f"{side[:-1]}_ids.txt" for side in paths]
    output = Output(cfg.out, "encoded vectors", names, cfg.overwrite)

    from vsehub.cli.nodes import components
    from vsehub.data.vectors.embeddings import check_vectors, open_vectors
    from vsehub.io.arrays import write_array
    from vsehub.models.trained import TrainedModel

    files = {side: open_vectors(path, side, normalize=False) for side, path in paths.items()}
    model = TrainedModel(checkpoint, components(cfg.trust), batch_size=4096)
    require(
        model.similarity.inner_product,
        f"checkpoint: the scores of {type(model.similarity).__name__} in {model.path} are no inner products of vectors",
    )
    for side, vectors in files.items():
        shape = model.model.image_shape if side == "images" else model.model.text_shape
        require(
            vectors.shape[1:] == shape,
            f"{vectors} has vectors of {vectors.shape[1]} numbers, but {model.path} was trained on {side} of shape "
            f"{shape} (None: captions); encode pictures and captions from Python: vsehub.load",
        )
        check_vectors(vectors)
    with output.transaction():
        for side, vectors in files.items():
            if vectors.ids is not None:
                write_text(output / f"{side[:-1]}_ids.txt", "".join(f"{name}\n" for name in vectors.ids))
            encoder = model.encode_images if side == "images" else model.encode_texts
            blocks = (model.similarity.vectors(encoder(rows)).float().cpu().numpy() for _, rows in vectors.blocks())
            rows, dim = write_array(output / f"{side}.npy", len(vectors), blocks)
            print(f"{side}: {rows:,} unit vectors of {dim} numbers in {output.folder / f'{side}.npy'}")
