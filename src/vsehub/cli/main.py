"""Entry point `vsehub COMMAND ...`: lists the commands and starts one, importing nothing heavy before that."""

import os
import signal
import sys
from importlib import import_module
from io import TextIOWrapper

from vsehub import __version__

COMMANDS = {
    "train": "train encoders with a loss; -m: a sweep; resume=RUN_FOLDER: continue a run",
    "evaluate": "measure a checkpoint under a criterion and a protocol",
    "extract": "extract features of pictures with a pretrained network, for data=precomp",
    "encode": "encode vectors with a checkpoint that was trained on vectors, for rerank and diagnose",
    "report": "compare runs in one table and one page",
    "search": "search a data set with a checkpoint: texts find images, an image finds captions",
    "rerank": "rank your embeddings with hubs corrected, and measure before and after",
    "index": "build an index of a reranking: FAISS, Milvus, LanceDB, Qdrant or Postgres",
    "calibrate": "learn from known answers which scores of a reranking mean that nothing is there",
    "add": "add items to a collection that index filled, or remove items",
    "serve": "show a collection in a browser: search, corrections side by side, hubs",
    "diagnose": "measure the hubness of your embeddings under several criteria",
    "export": "write a checkpoint's encoders as ONNX",
    "wandb-dashboard": "build a view of a wandb project, comparing losses",
}

USAGE = f"""vsehub {__version__}: text-image matching, with hubness reduced in training, corrected and measured

usage: vsehub COMMAND [key=value ...]

commands:
{chr(10).join(f"  {name:<15} {text}" for name, text in COMMANDS.items())}

  vsehub COMMAND --help      the settings of a command, and the choices of each group
  vsehub COMMAND --cfg job   the configuration that results from the given settings

examples:
  vsehub train                                                  the embedded scenes, HAL
  vsehub train -m loss=sum,max,knn_margin,hal seed=0,1          a sweep
  vsehub train data=precomp data.root=FOLDER loss=hal bank=memory
  vsehub extract data.json=FILE data.images=FOLDER image_encoder=resnet152 out=FEATURES
  vsehub evaluate checkpoint=RUN/checkpoints/best.safetensors criterion=csls
  vsehub report runs/ out=report
  vsehub search checkpoint=RUN/checkpoints/best.safetensors "two dogs on a beach"
  vsehub diagnose queries=captions.npy items=images.npy truth=pairs.csv
  vsehub rerank queries=captions.npy items=images.npy criterion=csls out=reranked
  vsehub index reranked engine=hnsw
  vsehub export checkpoint=RUN/checkpoints/best.safetensors format=onnx out=encoders
"""


def main() -> None:
    """Entry point of the console script; exits with 2 on a wrong command.

    Programs that this process starts do not import Python files of their working folder (`PYTHONSAFEPATH`).
    """
    let_interrupts_end()
    from vsehub.checks import nearest
    from vsehub.cli.signals import end_with_starter
    from vsehub.io.address import keep_typed, mask_output, masked, set_aside

    end_with_starter()
    os.environ["PYTHONSAFEPATH"] = "1"
    # Threads of OpenMP wait for each other without spinning: where another program takes a core, a training that spins
    # takes many times as long, and where none does, it gains nothing. To be set before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    open_streams()
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE)
        return
    if arguments[0] in ("-V", "--version"):
        print(__version__)
        return
    command = arguments[0]
    if command not in COMMANDS:
        known = f"{nearest(command, COMMANDS)}; choose one of {', '.join(COMMANDS)}"
        print(masked(f"vsehub: unknown command {command!r}{known}"), file=sys.stderr)
        raise SystemExit(2)
    # Hydra reads the overrides from sys.argv and names its program after the first entry.
    mask_output()
    several = bool({"-m", "--multirun"} & set(arguments))
    sys.argv = [f"vsehub {command}", *(set_aside(one, several) for one in arguments[1:])]
    keep_typed(sys.argv)
    from vsehub.cli.app import boundary, run
    from vsehub.cli.overrides import with_keys, with_quoted_addresses

    with boundary():
        sys.argv[1:] = with_keys(command, [with_quoted_addresses(one, several) for one in sys.argv[1:]])
        name = command.replace("-", "_")
        module = import_module(f"vsehub.cli.{name}")
        if command == "train":
            module.main()
        else:
            run(getattr(module, name), name)


def let_interrupts_end() -> None:
    """Let SIGINT end this process at once and silently, except where `signals.answered` handles the signal.

    Python would raise KeyboardInterrupt instead, which prints a traceback where nothing catches it: while modules are
    imported, and in what runs at exit.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def open_streams() -> None:
    """Write output as UTF-8 in every locale, and discard it if its stream is closed."""
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")
