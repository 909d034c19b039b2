"""`vsehub export`: a checkpoint's encoders, or measured embeddings, as files that other programs read."""

from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import fail, require
from vsehub.cli import app
from vsehub.cli.embeddings import PAGE, RESULT, Settings, built, finish, opened
from vsehub.cli.nodes import build, choice, components
from vsehub.evaluation.checkpoint_file import checkpoint_file
from vsehub.io.outputs import Output

if TYPE_CHECKING:
    from vsehub.export.items import ItemsFormat
    from vsehub.export.model import ModelFormat

DESCRIPTION = "export.json"
# Settings of embeddings, and those of a checkpoint.
OF_ITEMS = (
    *("items", "queries", "reference", "reference_items", "truth", "query_ids", "item_ids", "query_labels"),
    *("item_labels", "item_images", "normalize"),
)


def main() -> None:
    """Run the command."""
    app.run(export, "export")


def export(cfg: DictConfig) -> None:
    """Write `cfg.checkpoint`, or `cfg.items` with their hubness, in the chosen format."""
    name = choice("format")
    require(name != "None", f"format is not set; give format=NAME, one of {', '.join(components().choices('format'))}")
    if cfg.checkpoint is not None:
        given = [one for one in OF_ITEMS if cfg[one] is not None]
        require(not given, f"checkpoint and {', '.join(given)} are given; give a checkpoint, or items and queries")
        export_checkpoint(cfg, name)
        return
    require(
        cfg["items"] is not None,
        "there is nothing to export; give checkpoint=FILE for its encoders, or items=FILE and queries=FILE",
    )
    require(cfg.trust is None, "trust is for what a checkpoint names, and items are given; omit trust")
    export_items(cfg, name)


def export_checkpoint(cfg: DictConfig, name: str) -> None:
    """Write both encoders of a checkpoint."""
    path = checkpoint_file(cfg.checkpoint)
    out = Output(cfg.out, "an exported model", (DESCRIPTION,), cfg.overwrite)
    form = model_format(cfg, name)

    from vsehub.evaluation.trained import TrainedModel
    from vsehub.export.model import export_model

    told = export_model(TrainedModel(path, components(cfg.trust), device="cpu"), form, out)
    for side in ("image", "text"):
        one = told[side]
        said = f"vectors of {one['dim']} numbers, at most {one['largest_difference']:.1e} from the checkpoint's"
        print(f"{side} encoder: {one['file']}, {said}")
    print(f"similarity: {told['similarity']['name']}, to be computed by you: {told['similarity']['how']}")
    print(f"written to {cfg.out}: {', '.join([*told['files'], DESCRIPTION])}")


def export_items(cfg: DictConfig, name: str) -> None:
    """Rank items for queries under a criterion, and write the items with what was measured of them."""
    form = items_format(cfg, name)
    settings = Settings.of(cfg, "export", "an export", (RESULT, PAGE, *form.files))

    from vsehub.criteria import Auto, NearestNeighbor
    from vsehub.export.items import MeasuredItems
    from vsehub.report.terminal import table
    from vsehub.rerank.choose import Tuning
    from vsehub.rerank.compare import Job, compared

    criterion = built(choice("criterion"), cfg.criterion)
    tuning = Tuning() if isinstance(criterion, Auto) else None
    # The plain ranking is measured in any case.
    corrections = {} if isinstance(criterion, NearestNeighbor) else {choice("criterion"): criterion}
    out = settings.output
    job = Job("export", out, settings.local(corrections), settings.k, settings.seed, tuning)
    with compared(opened(settings, corrections), corrections, job) as found:
        items = MeasuredItems.of(found)
        out.begin((RESULT, PAGE, *form.files))
        form.write(items, out.folder)
        written = [*form.files, *finish(found, out)]
    print(f"{table(found.record)}\nwritten to {settings.out}: {', '.join(written)}")
    print(f"open it: {form.opened_by(items, out.folder)}")


def model_format(cfg: DictConfig, name: str) -> "ModelFormat":
    """The chosen format. Raises InputError if it is not one of models, or if a package that it needs is missing."""
    from vsehub.export.model import ModelFormat

    form = build("format", cfg.format)
    if not isinstance(form, ModelFormat):
        fail(f"format={name} holds vectors, not models; give items=FILE and queries=FILE, or format=onnx")
    form.require()
    return form


def items_format(cfg: DictConfig, name: str) -> "ItemsFormat":
    """The chosen format. Raises InputError if it is not one of embeddings."""
    from vsehub.export.items import ItemsFormat

    form = build("format", cfg.format)
    if not isinstance(form, ItemsFormat):
        fail(f"format={name} holds models, not vectors; give checkpoint=FILE, or format=embedding_atlas")
    return form
