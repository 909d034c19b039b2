"""A wandb logger whose run continues after its process was killed: each row once, none missing."""

import io
import json
import netrc
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from matplotlib.figure import Figure
from PIL import Image
from pytorch_lightning.loggers import WandbLogger

from vsehub.checks import InputError, fail, one_of, require
from vsehub.io.files import atomic

SECONDS = 10
MODES = ("auto", "online", "offline")


def is_offline(mode: str) -> bool:
    """Whether nothing is sent: "auto" is online where an account is set up. Raises InputError for another mode."""
    one_of("wandb mode", mode, MODES)
    return mode == "offline" or (mode == "auto" and not has_account())


def has_account() -> bool:
    """Whether a wandb key is set up on this machine; WANDB_MODE wins where it is set."""
    mode = os.environ.get("WANDB_MODE")
    if mode is not None:
        one_of("WANDB_MODE", mode, ("online", "offline", "disabled", "dryrun", "run", "shared"))
    return has_key() if mode is None else mode == "online"


def has_key() -> bool:
    """Whether a wandb key is in the environment or, for the server in use, in the netrc file."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    file = Path(os.environ.get("NETRC", Path.home() / ".netrc"))
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    try:
        return file.is_file() and netrc.netrc(file).authenticators(host) is not None
    except netrc.NetrcParseError:
        return False


def sign_in():
    """wandb's API, its key tried out. Raises InputError: there is no key, it is refused, or no server answers in time.

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
PICTURE = "val/n_10"


class ResumableWandbLogger(WandbLogger):
    """A WandbLogger that keeps its rows in `save_dir`/wandb/history.jsonl too, for `go_on`.

    wandb writes an offline run in blocks of 32 KiB and sends an online run every few seconds, so what it has of a run
    that was killed is neither all that was logged nor what the checkpoint knows. The other arguments are WandbLogger's.
    """

    def __init__(self, save_dir: str, **settings: Any):
        # Offline there is no run to take up before `wandb sync`; resume="allow" would append there, and so double rows.
        super().__init__(save_dir=save_dir, resume=None if settings.get("offline") else "allow", **settings)
        self._history = Path(save_dir) / "wandb" / "history.jsonl"
        self._begun = False
        self._sent: set[tuple] = set()  # rows of the broken epoch that wandb has

    def go_on(self, run_id: str, step: int, epoch: dict | None) -> None:
        """Take up the run `run_id` from the checkpoint after `step` steps.

        wandb gets the rows up to there that it does not have; offline these are all, since a new folder is begun and
        the earlier ones are set aside as wandb/replaced-*. Rows after them are left out where wandb has them already.
        epoch: the metrics of the last epoch, in case the process was killed before they were logged.
        """
        self._wandb_init["id"] = self._id = run_id
        self._set_aside(run_id)
        rows = self._read()
        self._write("".join(f"{json.dumps(row)}\n" for row in rows.values()))
        at_wandb = self._number()
        self._sent = {key for key, row in rows.items() if row["number"] < at_wandb}
        kept = [row for row in rows.values() if row["step"] < step]
        for row in kept:
            self._log(row)
        if epoch and not any(row["step"] == step - 1 and "val/rsum" in row.get("metrics", ()) for row in kept):
            self.log_metrics(epoch, step - 1)

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log a row; one without a step, as pictures and tables are, is not kept."""
        if step is None:
            super().log_metrics(metrics)
        else:
            self._log({"step": step, "metrics": dict(metrics)})

    def log_histograms(self, histograms: dict, step: int) -> None:
        """Log a picture of the N_10 distributions of both directions."""
        self._log({"step": step, "n_10": {direction: {"10": by_k["10"]} for direction, by_k in histograms.items()}})

    def _log(self, row: dict) -> None:
        if _key(row) in self._sent:
            return
        self._append(row | {"number": self._number()})  # first: a kill in between leaves a row to send, not two
        if "metrics" in row:
            super().log_metrics(row["metrics"], row["step"])
        else:
            self.log_image(PICTURE, [picture(occurrence_figure(row["n_10"]))])

    def _number(self) -> int:
        """The number that wandb gives to the next row; `step` is 0 until the first, also in a run that continues."""
        return max(self.experiment.step, self.experiment.starting_step)

    def _read(self) -> dict[tuple, dict]:
        """The rows in the order in which they were first logged, each as it was logged last."""
        rows = {}
        for line in self._history.read_text(encoding="utf-8").splitlines() if self._history.is_file() else ():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:  # cut off by the kill
                continue
            rows[_key(row)] = row
        return rows

    def _write(self, text: str) -> None:
        with atomic(self._history) as handle:
            handle.write(text.encode())
        self._begun = True

    def _append(self, row: dict) -> None:
        if not self._begun:  # a new run, perhaps in the folder of an older one
            self._write("")
        with self._history.open("a") as handle:
            handle.write(json.dumps(row) + "\n")
            handle.flush()
            os.fsync(handle.fileno())

    def _set_aside(self, run_id: str) -> None:
        """Rename the run's offline folders: `wandb sync` would send them too, or stop at one that is all but empty."""
        for folder in self._history.parent.glob("offline-run-*"):
            if folder.name.endswith(f"-{run_id}"):
                folder.rename(folder.with_name(f"replaced-{folder.name}"))


def require_id(run_id: Any, where: str) -> str:
    """The id of a wandb run, read from a file; InputError unless it can be one."""
    valid = isinstance(run_id, str) and 0 < len(run_id) <= LONGEST and run_id.isprintable()
    require(
        valid and run_id == run_id.strip() and not RESERVED.search(run_id),
        f"{where} names the wandb run {run_id!r}, which is not a wandb id: text of up to {LONGEST} characters without "
        f'any of : ; , # ? / \' \\. Restore the file, or remove its "wandb" entry to log to a new wandb run',
    )
    return run_id


def occurrence_figure(histograms: dict) -> Figure:
    """How many items have each N_10, log-log, one panel a direction."""
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


def _key(row: dict) -> tuple:
    return row["step"], *sorted(row.get("metrics", (PICTURE,)))


def wandb_logger(
    save_dir: str,
    name: str,
    project: str = "vsehub",
    entity: str | None = None,
    group: str | None = None,
    tags: Sequence[str] = (),
    mode: str = "auto",
) -> ResumableWandbLogger:
    """A wandb run in `save_dir`, its own even where an earlier job of this process left one open.

    mode: "online", "offline" (send it later with `wandb sync`), or "auto": online where an account is set up on this
    machine, else offline. Raises InputError for another mode, and online where the account is refused.
    """
    import wandb as library

    offline = is_offline(mode)
    if not offline:
        sign_in()
    if library.run is not None:
        library.finish(exit_code=1)
    return ResumableWandbLogger(
        save_dir,
        name=name,
        project=project,
        entity=entity,
        group=group,
        tags=list(tags),
        offline=offline,
        log_model=False,
    )
