"""The files of models, on this machine or with a card on the Hugging Face hub; torch is not imported."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vsehub import __version__
from vsehub.checks import InputError, existing, require
from vsehub.extras import package
from vsehub.io.address import masked
from vsehub.io.arrays import shortened
from vsehub.io.files import read_object

SUFFIX, SCHEME = ".safetensors", "hf://"
MODEL, CARD = "model.safetensors", "README.md"
_TEXT = """---
library_name: "vsehub"
pipeline_tag: "feature-extraction"
tags: ["image-text-retrieval", "hubness"]
# license: fill in, such as mit or cc-by-4.0; the data's own terms count too
---

# {name}

Image and text encoders for matching, trained with vsehub.

```python
import vsehub

model = vsehub.load("{address}")
```

| trained and measured on the test split, plain similarity | |
|---|---|
{rows}

## Intended use, limits, licence

Fill in.
"""
_FACTS = ("label", "architecture", "dataset", "seed", "epochs", "vsehub")
_METRICS = ("rsum", *(f"{side}/r{k}" for side in ("i2t", "t2i") for k in (1, 5, 10)), "hubness/t2i/skew_10")


def checkpoint_file(path: str | Path) -> Path:
    """The path of a checkpoint; for hf://USER/NAME or hf://USER/NAME@REVISION that of its copy in the hub's cache.

    If the hub does not answer, the cached copy is taken. Raises InputError for a missing file, one whose name is not
    that of a checkpoint, and where the hub refuses.
    """
    require(isinstance(path, str | Path), f"checkpoint is {path}; expected one file")
    if str(path).startswith(SCHEME):
        require(".." not in str(path), f"checkpoint is {path!r}; expected hf://USER/NAME or hf://USER/NAME@REVISION")
        repo, _, revision = str(path).removeprefix(SCHEME).partition("@")
        hub = package("checkpoint", "hub", "huggingface_hub")
        with _answered(f"checkpoint: {path}"):
            return Path(hub.hf_hub_download(repo, MODEL, revision=revision or None))
    path = existing("checkpoint", path, f"Give the path of a checkpoint, e.g. RUN_FOLDER/checkpoints/best{SUFFIX}")
    require(
        path.is_file() and path.suffix != ".ckpt",
        f"checkpoint: {path} is a folder, or the state of a training under way; give the model of a run, "
        f"RUN_FOLDER/checkpoints/best{SUFFIX}",
    )
    return path


def push(checkpoint: Path, repo: str, private: bool, overwrite: bool, token: str | None) -> str:
    """Upload a checkpoint with its card; returns the address of the new version. See `TrainedModel.push_to_hub`."""
    hub = package("push_to_hub", "hub", "huggingface_hub")
    client, card = hub.HfApi(token=token), card_of(checkpoint, repo)  # only the client gets the token
    with _answered(f"push_to_hub: {repo}"):
        client.create_repo(repo, private=private, exist_ok=True)
        require(
            overwrite or MODEL not in client.list_repo_files(repo),
            f"push_to_hub: {repo} holds a model already. Give another name, or overwrite=True to put a new version on "
            "top; the hub keeps the earlier one",
        )
        operations = [hub.CommitOperationAdd(MODEL, str(checkpoint)), hub.CommitOperationAdd(CARD, card.encode())]
        commit = client.create_commit(repo, operations, commit_message=f"A model of vsehub {__version__}")
    return f"{SCHEME}{repo}@{commit.oid}"


def card_of(checkpoint: Path, repo: str) -> str:
    """The model card: the data, seed, metrics and hubness in the `run.json` of the checkpoint's run, if it is there."""
    run = read_object(checkpoint.parent.parent / "run.json") if checkpoint.parent.name == "checkpoints" else {}
    measured = run.get("metrics") or {}
    facts = {name: run.get(name) for name in _FACTS} | {name: measured.get(f"test/{name}") for name in _METRICS}
    shown = {name: f"{value:.2f}" if isinstance(value, float) else value for name, value in facts.items()}
    rows = [f"| {name} | {value} |" for name, value in shown.items() if value is not None]
    return _TEXT.format(name=repo.partition("/")[2], address=f"{SCHEME}{repo}", rows="\n".join(rows))


@contextmanager
def _answered(about: str) -> Iterator[None]:
    """Turn errors of the hub's client into one line, without a token."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the client's classes have no common base
        words = re.sub(r"hf_[A-Za-z0-9]{8,}", "hf_***", masked(str(error)))
        raise InputError(f"{about}: {type(error).__name__}: {shortened(words)}") from error
