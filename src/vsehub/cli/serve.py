"""`vsehub serve`: look at a data set or a reranking in a browser: plain beside corrected search, and hubs."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import require
from vsehub.cli.nodes import as_list, build, components, model_settings, require_unset
from vsehub.cli.search import open_model
from vsehub.extras import require_packages
from vsehub.models.hub import checkpoint_file

if TYPE_CHECKING:
    from vsehub.web.catalogue import Contents


def serve(cfg: DictConfig) -> None:
    """Open what the configuration names, and serve pages on it until the command is interrupted."""
    require_packages("serving pages", "serve", "fastapi", "uvicorn")
    sources = [name for name in ("result", "checkpoint", "model") if cfg[name] is not None]
    require(
        sources in (["checkpoint"], ["result"], ["result", "checkpoint"], ["result", "model"]),
        f"{' and '.join(sources) or 'nothing'} given; serve checkpoint=RUN_FOLDER/checkpoints/best.safetensors, or the "
        "folder that vsehub rerank wrote, perhaps with checkpoint= or model=",
    )
    require_unset(cfg, ("split", "reference", "data"), "result=", unless=cfg.result is None)
    settings = {} if sources == ["result"] else model_settings(cfg)
    if cfg.checkpoint is not None:
        checkpoint_file(cfg.checkpoint)
    names = list(map(str, as_list(cfg.criteria)))

    from vsehub.web.server import address, bind, run

    bound = bind(str(cfg.host), cfg.port)  # raises before anything is loaded
    from vsehub.web.application import application
    from vsehub.web.catalogue import PLAIN, Catalogue

    parts = components()
    criteria = {name: build("criterion", parts.node("criterion", name)) for name in names if name != PLAIN}
    contents = open_contents(cfg, settings)
    for name in contents.stored:  # that of the result comes first
        criteria = {name: build("criterion", parts.node("criterion", name)), **criteria}
    served = application(Catalogue(contents, criteria), str(cfg.host))
    print(f"{contents.title}\n{address(bound)}  (Ctrl-C ends it)", flush=True)
    with suppress(KeyboardInterrupt):
        run(served, bound)


def open_contents(cfg: DictConfig, settings: dict[str, Any]) -> "Contents":
    """Open the contents that the configuration names. settings: `model_settings`, {} without a model.

    Raises InputError if the contents cannot be opened.
    """
    from vsehub.web.catalogue import SentenceEncoder, result_contents, split_contents

    if cfg.result is None:
        return split_contents(open_model(cfg, settings), cfg.split or "test", cfg.reference or "train", cfg.images)
    from vsehub.ranking.result import Result

    result = Result(str(cfg.result), {"item_images": cfg.images})
    encoder = SentenceEncoder(open_model(cfg, settings), result.inputs.settings["normalize"]) if settings else None
    thresholds = {rate: values["threshold"] for rate, values in result.rates.items()}
    return result_contents(
        result.inputs, encoder, {result.name: (result.criterion.scale, result.bias.float())}, thresholds
    )
