"""Models on the Hugging Face hub: one safetensors file and a card, written and read by huggingface_hub."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vsehub import __version__
from vsehub.checks import InputError, fail, require
from vsehub.extras import package
from vsehub.io.address import masked
from vsehub.io.arrays import shortened
from vsehub.io.files import read_object

SCHEME = "hf://"
MODEL, CARD = "model.safetensors", "README.md"
SECONDS = 10.0  # the hub's time to answer with its version
_REPO = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}"
_ADDRESS = re.compile(rf"{SCHEME}(?P<repo>{_REPO})(?:@(?P<revision>[\w][\w./-]{{0,199}}))?")
_CLIENTS = ("httpx", "httpcore", "requests", "urllib3", "huggingface_hub")  # modules of the hub's errors
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
_METRICS = ("rsum", *(f"{side}/r{k}" for side in ("i2t", "t2i") for k in (1, 5, 10)), "hubness/t2i/skew_10")


def is_on_hub(path: str | Path) -> bool:
    """Return True if a text is an address of the hub."""
    return str(path).startswith(SCHEME)


def fetched(address: str, setting: str = "checkpoint") -> Path:
    """The local copy of the model behind hf://USER/NAME or hf://USER/NAME@REVISION, in the hub's own cache.

    If the hub does not answer, the cached copy is taken. Raises InputError for an unknown model, if the token does
    not allow it, and if neither hub nor cache has it. setting: for messages.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or ".." in address:
        fail(
            f"{setting}: {address!r} is not the address of a model; expected hf://USER/NAME or hf://USER/NAME@REVISION"
        )
    hub = package(setting, "hub", "huggingface_hub")
    with _answered(f"{setting}: {address}"):
        path = hub.hf_hub_download(
            found["repo"],
            MODEL,
            revision=found["revision"],
            etag_timeout=SECONDS,
            library_name="vsehub",
            library_version=__version__,
        )
    return Path(path)


def push(checkpoint: Path, repo: str, card: str, private: bool, overwrite: bool, token: str | None) -> str:
    """Upload a checkpoint with its card; returns the address of the new version. See `TrainedModel.push_to_hub`."""
    require(re.fullmatch(_REPO, repo) is not None, f"repo is {repo!r}; expected USER/NAME")
    hub = package("push_to_hub", "hub", "huggingface_hub")
    # Only the client gets the token.
    client = hub.HfApi(token=token, library_name="vsehub", library_version=__version__)
    with _answered(f"push_to_hub: {repo}"):
        client.create_repo(repo, private=private, exist_ok=True)
        there = sorted(set(client.list_repo_files(repo)) & {MODEL, CARD})
        require(
            not there or overwrite,
            f"push_to_hub: {repo} holds {', '.join(there)} already. Give another name, or overwrite=True to put a new "
            "version on top; the hub keeps the earlier one",
        )
        operations = [hub.CommitOperationAdd(MODEL, str(checkpoint)), hub.CommitOperationAdd(CARD, card.encode())]
        commit = client.create_commit(repo, operations, commit_message=f"A model of vsehub {__version__}")
    return f"{SCHEME}{repo}@{commit.oid}"


def card_of(checkpoint: Path, config: dict[str, Any], repo: str) -> str:
    """The model card: the model, its data, seed, metrics and hubness, and a licence to fill in.

    Metrics come from the `run.json` of the checkpoint's run, if it is there; paths of this machine are left out.
    """
    run = read_object(checkpoint.parent.parent / "run.json") if checkpoint.parent.name == "checkpoints" else {}
    loss, measured = str((config.get("loss") or {}).get("_target_")).rpartition(".")[2], run.get("metrics") or {}
    facts = {
        "loss": run.get("label") or loss,
        "encoders": run.get("architecture"),
        "data": run.get("dataset"),
        "seed": run.get("seed"),
        "epochs": run.get("epochs"),
        "vsehub": run.get("vsehub"),
        **{name: measured.get(f"test/{name}") for name in _METRICS},
    }
    rows = [f"| {name} | {_cell(value)} |" for name, value in facts.items() if value is not None]
    return _TEXT.format(name=repo.partition("/")[2], address=f"{SCHEME}{repo}", rows="\n".join(rows))


def _cell(value: Any) -> str:
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return " ".join(text.replace("|", "\\|").split())[:200]


@contextmanager
def _answered(about: str) -> Iterator[None]:
    """Turn errors of the hub's client into one line, without a token."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if not (isinstance(error, OSError) or type(error).__module__.startswith(_CLIENTS)):
            raise
        words = re.sub(r"hf_[A-Za-z0-9]{8,}", "hf_***", masked(str(error)))
        raise InputError(f"{about}: {type(error).__name__}: {shortened(words)}") from error
