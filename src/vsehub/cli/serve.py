"""`vsehub serve`: look at a collection in a browser: plain and corrected search side by side, and its hubs."""

import sys
from typing import TYPE_CHECKING

from omegaconf import DictConfig, ListConfig, OmegaConf

from vsehub.checks import boolean, existing, fail, one_of, require, whole, whole_seed
from vsehub.cli import app
from vsehub.cli.embeddings import built
from vsehub.cli.nodes import components
from vsehub.cli.published import model_settings, require_checkpoint_alone
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.extras import require_packages

if TYPE_CHECKING:
    from vsehub.web.contents import Asker, Contents

FILES = ("queries", "truth", "item_ids", "query_ids", "item_labels", "query_labels")


def main() -> None:
    """Run the command; data.KEY=VALUE changes a setting of the checkpoint's data."""
    sys.argv = [sys.argv[0], *(f"+{one}" if one.startswith("data.") else one for one in sys.argv[1:])]
    app.run(serve, "serve")


def serve(cfg: DictConfig) -> None:
    """Open what the configuration names, and serve pages on it until the command is interrupted."""
    refuse_early(cfg)
    names = [str(name) for name in (cfg.criteria if isinstance(cfg.criteria, ListConfig) else [cfg.criteria])]
    require(len(set(names)) == len(names), f"criteria names a criterion twice: {', '.join(names)}")
    files = {name: components().path("criterion", name) for name in names if name != "nns"}

    from vsehub.web.server import address, hosts_of, listening, run

    taken = listening(str(cfg.host), cfg.port)  # refused before anything is loaded
    from vsehub.web.application import application
    from vsehub.web.catalogue import Catalogue, terms_of_items

    criteria = {name: built(name, OmegaConf.load(path)) for name, path in files.items()}
    terms_of_items(criteria)
    contents = opened(cfg)
    for name in contents.stored:
        if name not in criteria:
            criteria = {name: built(name, OmegaConf.load(components().path("criterion", name))), **criteria}
    served = application(Catalogue(contents, criteria, cfg.sample, cfg.seed), hosts_of(str(cfg.host)))
    run(served, taken, lambda: print(f"{contents.title}\n{address(taken)}  (Ctrl-C ends it)", flush=True))


def refuse_early(cfg: DictConfig) -> None:
    """Raise InputError for what can be refused without torch."""
    require_packages("serving pages", "serve", "fastapi", "uvicorn")
    require(
        cfg["items"] is None or cfg.index is None, "items and index are given; serve one of them, the other has its own"
    )
    require(
        cfg.checkpoint is None or cfg.model is None, "checkpoint and model are given; one of them encodes what is asked"
    )
    require(
        cfg["items"] is not None or cfg.index is not None or cfg.checkpoint is not None,
        "there is nothing to serve: give checkpoint=RUN_FOLDER/checkpoints/best.safetensors, items=FILE of vectors, or "
        "index= with index_uri= of a collection that rerank filled",
    )
    if cfg.checkpoint is not None:
        from vsehub.evaluation.checkpoint_file import checkpoint_file

        checkpoint_file(cfg.checkpoint)
        require_checkpoint_alone(model_settings(cfg))
    if cfg["items"] is None:
        own = [name for name in FILES if cfg[name] is not None and not (name == "queries" and cfg.index is not None)]
        require(not own, f"{', '.join(own)}: for items=FILE; omit them")
    for name in ("items", "queries", "reference"):
        if cfg[name] is not None and (name != "reference" or cfg["items"] is not None):
            require_vectors(name, split_path(str(cfg[name]))[0])
    require(
        cfg.truth is None or cfg.queries is not None,
        "truth is given without queries; give queries=FILE, or omit truth",
    )
    if cfg["items"] is None and cfg.index is None:
        from vsehub.data.sources import SPLITS

        one_of("split", cfg.split, SPLITS)
        one_of("reference", cfg.reference or "train", SPLITS)
    require(cfg.index is None or cfg.reference is None, "reference is given, and a collection has its own; omit it")
    if cfg.images is not None:
        existing("images", str(cfg.images), "Give a folder of images named after their ids")
    boolean("normalize", cfg.normalize, or_none=True)
    whole_seed("seed", cfg.seed)
    for name in ("sample", "eval_batch_size"):
        whole(name, cfg[name])
    require(
        isinstance(cfg.port, int) and not isinstance(cfg.port, bool) and 0 <= cfg.port < 2**16,
        f"port is {cfg.port!r}; expected 0 to 65535",
    )


def opened(cfg: DictConfig) -> "Contents":
    """What the configuration names. Raises InputError for what cannot be opened."""
    from vsehub.web import contents

    images = None if cfg.images is None else str(cfg.images)
    if cfg["items"] is None and cfg.index is None:
        from vsehub.cli.search import searching_model

        return contents.of_split(searching_model(cfg), cfg.split, cfg.reference or "train", images)
    if cfg.index is not None:
        from vsehub.data.vectors.embeddings import open_vectors
        from vsehub.serving.databases.engines import placed

        uri = None if cfg.index_uri is None else str(cfg.index_uri)
        place = placed(str(cfg.index), uri, str(cfg.index_name), None)
        queries = None if cfg.queries is None else open_vectors(str(cfg.queries), "queries", normalize=cfg.normalize)
        found = contents.of_collection(place, queries, images, asker(cfg, None))
        return with_asker(found)
    from vsehub.rerank.inputs import open_inputs
    from vsehub.rerank.names import Annotations

    given = {name: None if cfg[name] is None else str(cfg[name]) for name in (*FILES, "reference")}
    vectors = {name: path for name in ("queries", "reference") if (path := given.pop(name)) is not None}
    itself, items = "queries" not in vectors, str(cfg["items"])
    annotations = Annotations(**given, item_images=images)
    inputs = open_inputs({"queries": items, **vectors, "items": items}, annotations, cfg.normalize)
    inputs.check()
    return with_asker(contents.of_files(inputs, itself, asker(cfg, cfg.normalize), cfg.normalize))


def asker(cfg: DictConfig, normalize: bool | None) -> "Asker | None":
    """What encodes sentences and pictures, if a model is given."""
    if cfg.checkpoint is None and cfg.model is None:
        return None
    from vsehub.cli.search import searching_model
    from vsehub.web.contents import Asker

    return Asker(searching_model(cfg), normalize)


def with_asker(found: "Contents") -> "Contents":
    """The contents. Raises InputError if the model gives vectors of another dimension."""
    dim = found.inputs.sides.items.shape[1]
    if found.asker is not None and found.asker.reads:
        own = found.asker.texts(["a"]).shape[1]
        if own != dim:
            fail(
                f"the model gives vectors of {own} dimensions, and the items have {dim}; give the model that made them"
            )
    return found
