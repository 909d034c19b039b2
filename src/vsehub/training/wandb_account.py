"""Whether wandb has an account here, and signing in without waiting for long."""

import netrc
import os
from pathlib import Path
from urllib.parse import urlsplit

from vsehub.checks import InputError, fail, one_of, require

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


def refused(error: Exception) -> None:
    """Raise InputError with what wandb said, in one line."""
    said = " ".join(str(error).split())
    if "busy" in said or "timed out" in said:
        said = f"{os.environ.get('WANDB_BASE_URL', 'https://api.wandb.ai')} did not answer within {SECONDS} s"
    fail(f"wandb: {said}. To send nothing: mode=offline, in training logger.mode=offline")
