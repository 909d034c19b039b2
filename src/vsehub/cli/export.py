"""`vsehub export`: a checkpoint's encoders as files that other programs read."""

from omegaconf import DictConfig

from vsehub.cli.nodes import components
from vsehub.io.files import Output
from vsehub.models.hub import checkpoint_file

DESCRIPTION = "export.json"


def export(cfg: DictConfig) -> None:
    """Write both encoders of `cfg.checkpoint` as ONNX."""
    path = checkpoint_file(cfg.checkpoint)
    out = Output(cfg.out, "an exported model", (DESCRIPTION,), cfg.overwrite)

    from vsehub.export.onnx import write_onnx
    from vsehub.models.trained import TrainedModel

    description = write_onnx(TrainedModel(path, components(cfg.trust), device="cpu"), out)
    for side in ("image", "text"):
        encoder = description[side]
        print(
            f"{side} encoder: {encoder['file']}, vectors of {encoder['dim']} numbers, at most "
            f"{encoder['largest_difference']:.1e} from the checkpoint's"
        )
    print(f"similarity: {description['similarity']['name']}, to be computed by you: {description['similarity']['how']}")
    print(f"written to {cfg.out}: {', '.join([*description['files'], DESCRIPTION])}")
