"""wandb: the logger of a run, and the account that it needs."""

import io
import netrc
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from matplotlib.figure import Figure
from PIL import Image
from pytorch_lightning.loggers import WandbLogger

from vsehub.checks import InputError, fail, one_of, require
from vsehub.io.address import masked

SECONDS = 10
MODES = ("auto", "online", "offline")


def is_offline(mode: str) -> bool:
    """Return True if nothing is sent: "auto" is WANDB_MODE if it is set, or else online where there is a key.

    Raises InputError for another mode.
    """
    one_of("wandb mode", mode, MODES)
    if mode == "auto":
        mode = os.environ.get("WANDB_MODE") or ("online" if has_key() else "offline")
    return mode != "online"


def has_key() -> bool:
    """Return True if a wandb key is in the environment or, for the server in use, in the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    file = Path(os.environ.get("NETRC", Path.home() / ".netrc"))
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    try:
        return file.is_file() and netrc.netrc(file).authenticators(host) is not None
    except netrc.NetrcParseError:
        return False


def sign_in():
    """wandb's API, with a valid key. Raises InputError if the key is missing or refused, or no server answers in time.

    wandb itself would ask for a key, or try for a minute and a half.
    """
    require(has_key(), "wandb has no key here; run `wandb login`, set WANDB_API_KEY, or send nothing: mode=offline")
    import wandb

    try:
        return wandb.Api(timeout=SECONDS)
    except wandb.errors.Error as error:
        refused(error)
    except ValueError as error:  # an address that is none
        raise InputError(f"wandb: {error}") from error


def refused(error: Exception) -> NoReturn:
    """Raise InputError with what wandb said, in one line."""
    said = " ".join(str(error).split())
    if "busy" in said or "timed out" in said:
        said = f"{os.environ.get('WANDB_BASE_URL', 'https://api.wandb.ai')} did not answer within {SECONDS} s"
    fail(f"wandb: {said}. To send nothing: mode=offline, in training logger.mode=offline")


LONGEST = 128
RESERVED = re.compile(r"[:;,#?/'\\]")  # wandb's own rule, and the backslash: an id is part of a folder's name


def require_id(run_id: Any) -> None:
    """Raise InputError unless the id of a wandb run, which run.json names, can be one."""
    valid = isinstance(run_id, str) and 0 < len(run_id) <= LONGEST and run_id.isprintable()
    require(
        valid and run_id == run_id.strip() and not RESERVED.search(run_id),
        f"run.json names the wandb run {run_id!r}, which is not a wandb id: text of up to {LONGEST} characters without "
        f'any of : ; , # ? / \' \\. Restore the file, or remove its "wandb" entry to log to a new wandb run',
    )


def occurrence_figure(histograms: dict) -> Figure:
    """The number of items with each N_10, log-log, one panel a direction."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, (direction, by_k) in zip(figure.subplots(1, 2), histograms.items(), strict=True):
        points = [(n, items) for n, items in zip(by_k["10"]["occurrences"], by_k["10"]["items"], strict=True) if n]
        axes.loglog(*zip(*points, strict=True), "o", markersize=3)
        axes.set(title=direction, xlabel="N_10", ylabel="items")
    return figure


def picture(figure: Figure) -> Image.Image:
    """The figure as a picture."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return Image.open(buffer)


def wandb_logger(
    save_dir: str,
    name: str,
    project: str = "vsehub",
    entity: str | None = None,
    group: str | None = None,
    tags: Sequence[str] = (),
    mode: str = "auto",
    id: str | None = None,
) -> WandbLogger:
    """A wandb run in `save_dir`, its own even where an earlier job of this process left one open.

    mode: "online", "offline" (send it later with `wandb sync`), or "auto": online where an account is set up on this
    machine, else offline. id: a run to continue; steps after its last checkpoint appear twice. Raises InputError for
    another mode or an invalid id, and online where the account is refused.
    """
    import wandb as library

    if id is not None:
        require_id(id)
    offline = is_offline(mode)
    if not offline:
        sign_in()
    if library.run is not None:
        library.finish(exit_code=1)
    return WandbLogger(
        save_dir=save_dir,
        name=name,
        project=project,
        entity=entity,
        group=group,
        tags=list(tags),
        offline=offline,
        id=id,
        log_model=False,
        # wandb's metadata hold the arguments.
        settings=library.Settings(x_disable_meta=any(masked(one) != one for one in sys.argv)),
    )
