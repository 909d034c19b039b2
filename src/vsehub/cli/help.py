"""The second half of a command's --help: the text of its yaml, and the choices of its groups."""

import re
import textwrap

from omegaconf import OmegaConf

from vsehub.cli.nodes import components
from vsehub.components import conf_folder


def command_help(config: str) -> str:
    """The settings of a command with their comments, and the choices of its groups, for Hydra's template of help."""
    text = (conf_folder() / f"{config}.yaml").read_text(encoding="utf-8").partition("\nhydra:\n")[0]
    groups = re.findall(r"^  - (?:optional )?(\w+): ", text, re.MULTILINE)
    choices = "\n".join(f"  {group}={choices_of(group)}" for group in groups)
    more = f"settings of the chosen parts, such as loss.KEY: vsehub {config.replace('_', '-')} --cfg job"
    chosen = f"\n\nchoices (group=choice):\n{choices}\n\n{more}" if groups else ""
    return f"settings (key=value) and the choices made by default:\n\n{text}{chosen}".replace("$", "$$")


def choices_of(group: str) -> str:
    """The choices of a group, without those in folders."""
    return "\n      ".join(textwrap.wrap(", ".join(components().choices(group)), 100, break_on_hyphens=False))


OmegaConf.register_new_resolver("command_help", command_help, replace=True)
OmegaConf.register_new_resolver("choices_of", choices_of, replace=True)
