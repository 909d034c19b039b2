"""The command line of the studies: python -m experiments NAME VERB ...

python -m experiments --help            the studies and the tools
python -m experiments bank --help       the verbs of a study
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from experiments.study import Study, Verb, headings
from vsehub.checks import InputError

HERE = Path(__file__).parent
TOOLS = {
    "beside": "runs beside a published table",
    "compare": "train losses with seeds, evaluate under criteria, report",
    "embeddings": "sentences and their translations with vectors, to try diagnose and rerank on",
}


def parser(chosen: str | None) -> argparse.ArgumentParser:
    """The parser of all commands. Verbs are those of the `chosen` study alone, since only its file is imported."""
    whole = argparse.ArgumentParser(
        prog="python -m experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    studies = whole.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, title in [*headings(HERE), *TOOLS.items()]:
        if name != chosen:
            studies.add_parser(name, help=title)
            continue
        try:
            module = import_module(f"experiments.{name}" if name in TOOLS else f"experiments.{name}.study")
        except ModuleNotFoundError as error:
            whole.error(f"{name} needs {error.name}, which is not installed: `pip install '.[train,cpu]'` in the clone")
        study_parser = studies.add_parser(
            name, help=title, description=module.__doc__, formatter_class=whole.formatter_class
        )
        if name in TOOLS:
            add(study_parser, module.main, None)
            continue
        verbs = study_parser.add_subparsers(dest="word", required=True, metavar="VERB")
        for word, verb in module.STUDY.all_verbs().items():
            short = verb.about.partition("\n")[0]
            add(verbs.add_parser(word, help=short, description=verb.about), verb, module.STUDY)
    return whole


def add(parser: argparse.ArgumentParser, verb: Verb, study: Study | None) -> None:
    """Add the arguments that a verb declares."""
    for names, settings in verb.options:
        parser.add_argument(*names, **settings)
    parser.set_defaults(verb=verb, study=study)


def complete(options: argparse.Namespace) -> None:
    """Fill in what is the study's own where the command line leaves it out: folders; seeds become one list."""
    if getattr(options, "seeds", None):
        options.seeds = [seed for some in options.seeds for seed in some]
    if options.study is None:
        return
    if getattr(options, "folder", options) is None:
        options.folder = options.study.folder
    if getattr(options, "out", options) is None:
        part = getattr(options, "part", None)
        first = next(iter(options.study.trainings), None)
        options.out = Path("runs") / (options.study.name if part in (None, first) else f"{options.study.name}-{part}")


def main(words: Sequence[str] | None = None) -> None:
    """Run one command; exit status 2 for what it cannot be run with."""
    words = sys.argv[1:] if words is None else list(words)
    whole = parser(words[0] if words else None)
    options = whole.parse_args(words)
    try:
        complete(options)
        options.verb(options)
    except InputError as error:
        whole.error(str(error))
    except KeyboardInterrupt:
        whole.exit(130, "interrupted; the same command continues\n")


if __name__ == "__main__":
    main()
