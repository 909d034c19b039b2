"""`vsehub serve`: look at a collection in a browser: plain and corrected search side by side, and its hubs."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from vsehub.checks import require, whole
from vsehub.cli.nodes import build, components
from vsehub.cli.published import model_settings, require_checkpoint_alone
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.extras import require_packages

if TYPE_CHECKING:
    from vsehub.web.contents import Contents

FILES = ("queries", "truth", "item_ids", "query_ids", "item_labels", "query_labels")


def serve(cfg: DictConfig) -> None:
    """Open what the configuration names, and serve pages on it until the command is interrupted."""
    refuse_early(cfg)
    names = [str(name) for name in (cfg.criteria if isinstance(cfg.criteria, ListConfig) else [cfg.criteria])]
    files = {name: components().path("criterion", name) for name in names if name != "nns"}

    from vsehub.web.server import address, hosts_of, listening, run

    taken = listening(str(cfg.host), cfg.port)  # refused before anything is loaded
    from vsehub.web.application import application
    from vsehub.web.catalogue import Catalogue, terms_of_items

    criteria = {name: build("criterion", OmegaConf.load(path)) for name, path in files.items()}
    terms_of_items(criteria)
    contents = opened(cfg)
    for name in contents.stored:
        if name not in criteria:
            criteria = {name: build("criterion", OmegaConf.load(components().path("criterion", name))), **criteria}
    served = application(Catalogue(contents, criteria, cfg.sample, cfg.seed), hosts_of(str(cfg.host)))
    print(f"{contents.title}\n{address(taken)}  (Ctrl-C ends it)", flush=True)
    with suppress(KeyboardInterrupt):
        run(served, taken)


def refuse_early(cfg: DictConfig) -> None:
    """Raise InputError for settings that would only fail after minutes of loading, or be ignored."""
    require_packages("serving pages", "serve", "fastapi", "uvicorn")
    given = [name for name in ("result", "items", "checkpoint", "model") if cfg[name] is not None]
    require(
        given in (["result"], ["items"], ["checkpoint"]) or (len(given) == 2 and given[1] in ("checkpoint", "model")),
        f"{' and '.join(given) or 'nothing'} given; serve checkpoint=RUN_FOLDER/checkpoints/best.safetensors, or "
        "items=FILE of vectors or the folder of a reranking, each perhaps with checkpoint= or model=",
    )
    own = [name for name in FILES if cfg[name] is not None and given[0] != "items"]
    require(not own, f"{', '.join(own)}: for items=FILE; omit them")
    require(
        cfg.truth is None or cfg.queries is not None, "truth is given without queries; give queries=FILE, or omit it"
    )
    if cfg.checkpoint is not None:
        from vsehub.evaluation.checkpoint_file import checkpoint_file

        checkpoint_file(cfg.checkpoint)
        require_checkpoint_alone(model_settings(cfg))
    for name in ("items", "queries", "reference"):
        if cfg[name] is not None and given[0] == "items":
            require_vectors(name, split_path(str(cfg[name]))[0])
    whole("sample", cfg.sample)


def opened(cfg: DictConfig) -> "Contents":
    """Open the contents that the configuration names. Raises InputError if they cannot be opened."""
    from vsehub.cli.search import searching_model
    from vsehub.web import contents

    images = None if cfg.images is None else str(cfg.images)
    shown = {} if images is None else {"item_images": images}
    normalize = cfg.normalize
    stored: dict[str, Any] = {}
    thresholds: dict[float, float] = {}
    if cfg.result is not None:
        from vsehub.cli.result import Result

        result = Result(str(cfg.result), shown)
        inputs, normalize = result.inputs, result.inputs.given["normalize"]
        stored = {result.name: (result.criterion.scale, result.bias.float())}
        rates = (result.record["calibration"] or {"rates": []})["rates"]
        thresholds = {one["false_accept"]: one["threshold"] for one in rates}
    elif cfg["items"] is None:
        return contents.of_split(searching_model(cfg), cfg.split, cfg.reference or "train", images)
    else:
        from vsehub.ranking.inputs import open_inputs

        given = {name: str(cfg[name]) for name in (*FILES, "items", "reference") if cfg[name] is not None}
        inputs = open_inputs({"queries": given["items"]} | given | shown, normalize)
        inputs.check()
    asker = None
    if cfg.checkpoint is not None or cfg.model is not None:
        asker = contents.Asker(searching_model(cfg), normalize)
    found = contents.of_files(inputs, asker, normalize, stored, thresholds)
    if asker is not None and asker.reads:
        own, dim = asker.texts(["a"]).shape[1], found.inputs.sides.items.shape[1]
        require(
            own == dim,
            f"the model gives vectors of {own} dimensions, and the items have {dim}; give the model that made them",
        )
    return found
