"""`vsehub export`: a checkpoint's encoders, or measured embeddings, as files that other programs read."""

from omegaconf import DictConfig

from vsehub.checks import require
from vsehub.cli import app
from vsehub.cli.embeddings import PAGE, RESULT, Settings, built, finish, opened
from vsehub.cli.nodes import build, choice, components
from vsehub.evaluation.checkpoint_file import checkpoint_file
from vsehub.io.outputs import Output

DESCRIPTION, TABLE = "export.json", "items.parquet"


def main() -> None:
    """Run the command."""
    app.run(export, "export")


def export(cfg: DictConfig) -> None:
    """Write `cfg.checkpoint` as ONNX, or `cfg.items` with their hubness as a table."""
    wanted = "embedding_atlas" if cfg.checkpoint is None else "onnx"
    require(
        choice("format") == wanted,
        "format: give format=onnx and checkpoint=FILE, or format=embedding_atlas with items=FILE and queries=FILE",
    )
    if cfg.checkpoint is None:
        export_items(cfg)
    else:
        export_checkpoint(cfg)


def export_checkpoint(cfg: DictConfig) -> None:
    """Write both encoders of a checkpoint."""
    path = checkpoint_file(cfg.checkpoint)
    out = Output(cfg.out, "an exported model", (DESCRIPTION,), cfg.overwrite)

    from vsehub.evaluation.trained import TrainedModel

    found = build("format", cfg.format).write(TrainedModel(path, components(cfg.trust), device="cpu"), out)
    for side in ("image", "text"):
        one = found[side]
        said = f"vectors of {one['dim']} numbers, at most {one['largest_difference']:.1e} from the checkpoint's"
        print(f"{side} encoder: {one['file']}, {said}")
    print(f"similarity: {found['similarity']['name']}, to be computed by you: {found['similarity']['how']}")
    print(f"written to {cfg.out}: {', '.join([*found['files'], DESCRIPTION])}")


def export_items(cfg: DictConfig) -> None:
    """Rank items for queries under a criterion, and write the items with what was measured of them."""
    settings = Settings.of(cfg, "export", "an export", (RESULT, PAGE, TABLE))

    from vsehub.criteria import Auto, NearestNeighbor
    from vsehub.report.terminal import table
    from vsehub.rerank.choose import Tuning
    from vsehub.rerank.compare import Job, compared

    form, criterion = build("format", cfg.format), built(choice("criterion"), cfg.criterion)
    tuning = Tuning() if isinstance(criterion, Auto) else None
    # The plain ranking is measured in any case.
    corrections = {} if isinstance(criterion, NearestNeighbor) else {choice("criterion"): criterion}
    out = settings.output
    job = Job("export", out, settings.local(corrections), settings.k, settings.seed, tuning)
    with compared(opened(settings, corrections), corrections, job) as found:
        out.begin((RESULT, PAGE, TABLE))
        line = form.write(found, out.folder)
        written = [TABLE, *finish(found, out)]
    print(f"{table(found.record)}\nwritten to {settings.out}: {', '.join(written)}\nopen it: {line}")
