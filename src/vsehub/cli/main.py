"""Entry point `vsehub COMMAND ...`: lists the commands and starts one, importing nothing heavy before that."""

import atexit
import gc
import os
import signal
import sys
import warnings
from importlib import import_module
from io import TextIOWrapper
from typing import TextIO

from vsehub import __version__
from vsehub.checks import require, suggest

COMMANDS = {
    "train": "train encoders with a loss; -m: a sweep; resume=RUN_FOLDER: continue a run",
    "evaluate": "measure a checkpoint under a criterion and a protocol",
    "extract": "extract features of pictures with a pretrained network, for data=precomp",
    "encode": "encode vectors with a checkpoint that was trained on vectors, for rerank and diagnose",
    "report": "compare runs in one table and one page",
    "search": "print the pictures that texts find in a data set or a folder",
    "rerank": "rank your embeddings with hubs corrected, and measure before and after",
    "adapt": "fit linear maps of your embeddings to known pairs, if these show that it helps",
    "index": "build an index of a reranking: FAISS, Milvus, LanceDB, Qdrant or Postgres",
    "calibrate": "learn the score below which a query has no answer, from queries with known answers",
    "add": "add items to a collection that index filled, or remove items",
    "serve": "show a data set or a reranking in a browser: search, corrections side by side, hubs",
    "diagnose": "measure the hubness of your embeddings under several criteria",
    "wandb-dashboard": "build a view of a wandb project, comparing losses",
}

USAGE = f"""vsehub {__version__}: text-image matching, with hubness reduced in training, corrected and measured

usage: vsehub COMMAND [key=value ...]

commands:
{chr(10).join(f"  {name:<15} {text}" for name, text in COMMANDS.items())}

  vsehub COMMAND --help      the settings of a command, and the choices of each group
  vsehub COMMAND --cfg job   the configuration that results from the given settings

examples:
  vsehub train                                                  the built-in scenes, HAL
  vsehub train -m loss=sum,max,knn_margin,hal seed=0,1          a sweep
  vsehub train data=precomp data.root=FOLDER loss=hal bank=memory
  vsehub extract data.json=FILE data.images=FOLDER image_encoder=resnet152 out=FEATURES
  vsehub evaluate checkpoint=RUN/checkpoints/best.safetensors criterion=csls
  vsehub report runs/ out=report
  vsehub search checkpoint=RUN/checkpoints/best.safetensors "two dogs on a beach"
  vsehub diagnose queries=captions.npy items=images.npy truth=pairs.csv
  vsehub rerank queries=captions.npy items=images.npy criterion=csls out=reranked
  vsehub adapt queries=captions.npy items=images.npy truth=pairs.csv out=adapted
  vsehub index reranked engine=hnsw
"""


def main() -> None:
    """Entry point of the console script; exits with 2 on a wrong command.

    Programs that this process starts do not import Python files of their working folder (`PYTHONSAFEPATH`).
    """
    if "LOCAL_RANK" in os.environ and sys.platform == "linux":
        import ctypes

        # PR_SET_PDEATHSIG (1): the kernel kills this process when its parent ends, even if the parent is killed.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    os.environ["PYTHONSAFEPATH"] = "1"
    # OpenMP threads sleep while they wait. Threads that spin make training many times slower if another program uses
    # a core, and no faster otherwise. OpenMP reads the variable when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    command, *arguments = sys.argv[1:] or ["help"]
    # By default the garbage collector runs for every 700 new objects, and searches all of them once more at the end:
    # a fifth of a short command's time.
    gc.set_threshold(50_000 if command in ("train", "serve") else 500_000)
    atexit.register(gc.freeze)
    information = {"-h": USAGE, "--help": USAGE, "help": USAGE, "-V": __version__, "--version": __version__}
    if command in information:
        print(information[command])
        return
    from vsehub.cli.app import process_number, report_errors, run
    from vsehub.cli.overrides import for_hydra
    from vsehub.io.address import remember

    for argument in sys.argv[1:]:
        remember(argument)
    if command == "train" and process_number() > 0:  # only the first process prints and writes files
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
        warnings.simplefilter("ignore")
        arguments += ["hydra.run.dir=.", "hydra/job_logging=disabled"]
    for stream in (sys.stdout, sys.stderr):
        mask(stream)
    sys.argv = [f"vsehub {command}", *arguments]
    with report_errors():
        require(
            command in COMMANDS,
            f"unknown command {command!r}{suggest(command, COMMANDS)}; choose one of {', '.join(COMMANDS)}",
        )
        # Hydra reads the overrides from sys.argv and names its program after the first entry.
        sys.argv[1:] = for_hydra(command, arguments)
        name = command.replace("-", "_")
        run(getattr(import_module(f"vsehub.cli.{name}"), name), name)


def mask(stream: TextIO) -> None:
    """Make a stream mask secrets in everything that is written to it, and encode it as UTF-8 in every locale."""
    from vsehub.io.address import masked_output

    write = stream.write
    stream.write = lambda text: write(masked_output(text))  # type: ignore[method-assign]
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="replace")
