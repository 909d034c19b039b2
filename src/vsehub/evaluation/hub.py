"""Models on the Hugging Face hub: one safetensors file and a card, written and read by huggingface_hub."""

import json
import logging
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit
from urllib.request import getproxies

from vsehub import __version__
from vsehub.checks import InputError, fail, require
from vsehub.extras import package
from vsehub.io.address import masked
from vsehub.io.arrays import shortened
from vsehub.io.files import read_object

if TYPE_CHECKING:
    from types import ModuleType

log = logging.getLogger(__name__)

SCHEME = "hf://"
MODEL, CARD = "model.safetensors", "README.md"
SECONDS = 10.0  # the hub's time to answer with its version
_REPO = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}"
_ADDRESS = re.compile(rf"{SCHEME}(?P<repo>{_REPO})(?:@(?P<revision>[\w][\w./-]{{0,199}}))?")


def is_on_hub(path: str | Path) -> bool:
    """Whether a text is an address of the hub."""
    return str(path).startswith(SCHEME)


def fetched(address: str, setting: str = "checkpoint") -> Path:
    """The local copy of the model behind hf://USER/NAME or hf://USER/NAME@REVISION, in the hub's own cache.

    If the hub does not answer, the cached copy is taken. Raises InputError if there is no such model, if the token does
    not allow it, and if neither hub nor cache has it. setting: for messages.
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or ".." in address:
        fail(f"{setting}: {address!r} is no address of a model; expected hf://USER/NAME or hf://USER/NAME@REVISION")
    hub = _library(setting)
    reached = _reached(hub.constants.ENDPOINT)
    if not reached:
        log.warning("%s: the hub does not answer; its cache is looked through", address)
    with _answered(f"{setting}: {address}"):
        path = hub.hf_hub_download(
            found["repo"],
            MODEL,
            revision=found["revision"],
            etag_timeout=SECONDS,
            library_name="vsehub",
            library_version=__version__,
            local_files_only=not reached,
        )
    return Path(path)


def push(checkpoint: Path, repo: str, card: str, private: bool, overwrite: bool, token: str | None) -> str:
    """Upload a checkpoint with its card; returns the address of the new version. See `TrainedModel.push_to_hub`."""
    require(re.fullmatch(_REPO, repo) is not None, f"repo is {repo!r}; expected USER/NAME")
    hub = _library("push_to_hub")
    endpoint = hub.constants.ENDPOINT
    require(_reached(endpoint), f"push_to_hub: {repo}: {endpoint} does not answer. Check the connection or HF_ENDPOINT")
    # Only the client gets the token.
    client = hub.HfApi(token=token, library_name="vsehub", library_version=__version__)
    with _answered(f"push_to_hub: {repo}"):
        client.create_repo(repo, private=private, exist_ok=True)
        held = sorted(set(client.list_repo_files(repo)) & {MODEL, CARD})
        require(
            not held or overwrite,
            f"push_to_hub: {repo} holds {', '.join(held)} already. Give another name, or overwrite=True to put a new "
            "version on top; the hub keeps the earlier one",
        )
        operations = [
            hub.CommitOperationAdd(MODEL, str(checkpoint)),
            hub.CommitOperationAdd(CARD, card.encode()),
        ]
        made = client.create_commit(repo, operations, commit_message=f"A model of vsehub {__version__}")
    return f"{SCHEME}{repo}@{made.oid}"


def card_of(checkpoint: Path, config: dict[str, Any], repo: str) -> str:
    """The model card: the model, its data, protocol, seed, metrics and hubness, and a licence to fill in.

    Metrics come from the `run.json` of the checkpoint's run, if it is there; paths of this machine are left out.
    """
    run = read_object(checkpoint.parent.parent / "run.json") if checkpoint.parent.name == "checkpoints" else {}
    metrics = {name: value for name, value in dict(run.get("metrics") or {}).items() if isinstance(value, int | float)}
    measured = {name.removeprefix("test/"): float(value) for name, value in metrics.items() if name.startswith("test/")}
    loss = _kind(config.get("loss")).lower()
    tags = ["image-text-retrieval", "hubness", *([loss] if loss else [])]
    front = {"library_name": "vsehub", "pipeline_tag": "feature-extraction", "tags": tags}
    lines = ["---", *(f"{name}: {json.dumps(value)}" for name, value in front.items())]
    lines += ["# license: fill in, such as mit or cc-by-4.0; the data's own terms count too", "---", ""]
    lines += [f"# {repo.partition('/')[2]}", "", "Image and text encoders for matching, trained with vsehub.", ""]
    lines += ["```python", "import vsehub", "", f'model = vsehub.load("{SCHEME}{repo}")', "```", ""]
    facts = {
        "loss": run.get("label") or _kind(config.get("loss")),
        "encoders": run.get("architecture"),
        "data": run.get("dataset"),
        "sizes": _sizes(run.get("data")),
        "seed": run.get("seed"),
        "epochs": run.get("epochs"),
        "vsehub": run.get("vsehub"),
    }
    lines += [
        "| | |",
        "|---|---|",
        *(f"| {name} | {_cell(value)} |" for name, value in facts.items() if value not in (None, "")),
    ]
    lines += ["", "## Measured", ""]
    if "rsum" in measured:
        lines += ["On the test split, one ranking by plain similarity (criterion nns), one seed:", ""]
        lines += ["| | R@1 | R@5 | R@10 |", "|---|---:|---:|---:|"]
        for side, words in (("i2t", "image to text"), ("t2i", "text to image")):
            lines.append(
                f"| {words} | " + " | ".join(f"{measured.get(f'{side}/r{k}', 0.0):.1f}" for k in (1, 5, 10)) + " |"
            )
        skew, largest = _value(measured, "skew_10"), _value(measured, "largest_hub_10")
        never = _value(measured, "antihub_rate_10", 100)
        hubs = f"skewness of N_10 {skew}, largest hub {largest} queries, images never found {never} %"
        lines += ["", f"rsum {measured['rsum']:.1f}. Hubness of text to image: {hubs}."]
    else:
        lines.append("Not recorded: fill in what was measured, with protocol, criterion and seeds.")
    lines += ["", "## Intended use, limits, licence", "", "Fill in.", ""]
    return "\n".join(lines)


def _kind(node: Any) -> str:
    """The class of a part without its module."""
    return str(node.get("_target_", "")).rpartition(".")[2] if isinstance(node, dict) else ""


def _sizes(data: Any) -> str:
    if not isinstance(data, dict):
        return ""
    return "; ".join(
        f"{split} {facts.get('images', 0):,} images, {facts.get('captions', 0):,} captions"
        for split, facts in data.items()
        if isinstance(facts, dict)
        and isinstance(facts.get("images"), int)
        and isinstance(facts.get("captions", 0), int)
    )


def _cell(value: Any) -> str:
    return " ".join(str(value).replace("|", "\\|").split())[:200]


def _value(measured: dict[str, float], name: str, factor: float = 1) -> str:
    value = measured.get(f"hubness/t2i/{name}")
    return "not recorded" if value is None else f"{factor * value:.3g}"


def _reached(endpoint: str) -> bool:
    """Whether the hub takes a connection. The client itself would try six times in half a minute."""
    parts = urlsplit(endpoint)
    if parts.scheme in getproxies() or parts.hostname is None:
        return True  # behind a proxy only the client can tell
    try:
        with socket.create_connection((parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)), SECONDS):
            return True
    except OSError:
        return False


def _library(setting: str) -> "ModuleType":
    library = package(setting, "hub", "huggingface_hub")
    package(setting, "hub", "huggingface_hub.constants")
    return library


@contextmanager
def _answered(about: str) -> Iterator[None]:
    """Turn errors of the hub's client into one line, without a token."""
    from huggingface_hub import errors

    try:
        yield
    except InputError:
        raise
    except errors.LocalEntryNotFoundError as error:
        raise InputError(
            f"{about}: the hub does not answer, and the model is not in its cache. Check the connection or "
            "HF_ENDPOINT, and run the command again"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(f"{about}: there is no such revision; give a branch, a tag or a commit") from error
    except errors.EntryNotFoundError as error:
        raise InputError(f"{about} holds no {MODEL}: it is no model of vsehub") from error
    except (errors.RepositoryNotFoundError, errors.GatedRepoError) as error:
        raise InputError(
            f"{about}: there is no such repository, or the token does not allow it. Check the name, and log in: hf "
            "auth login"
        ) from error
    except errors.HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            _refused(about, error)
        raise InputError(f"{about}: the hub refuses ({_line(error)})") from error
    except errors.LocalTokenNotFoundError as error:
        _refused(about, error)
    except errors.HFValidationError as error:
        raise InputError(f"{about}: {_line(error)}") from error
    except OSError as error:
        raise InputError(f"{about}: {_line(error)}") from error
    except Exception as error:
        if not type(error).__module__.startswith(("httpx", "httpcore", "requests", "urllib3", "huggingface_hub")):
            raise
        raise InputError(
            f"{about}: the hub does not answer ({_line(error)}). Check the connection or HF_ENDPOINT"
        ) from error


def _refused(about: str, error: Exception) -> NoReturn:
    raise InputError(f"{about}: the hub refuses the token, or there is none. Log in: hf auth login") from error


def _line(error: Exception) -> str:
    words = re.sub(r"hf_[A-Za-z0-9]{8,}", "hf_***", masked(str(error)))
    return shortened(" ".join(words.split())) or type(error).__name__
