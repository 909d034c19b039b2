"""`vsehub completion SHELL`: a script with which a shell completes commands, groups, choices, keys and files.

At each Tab the script runs `vsehub completion --line "what was typed"`, which reads a few yaml files and imports
neither Hydra nor torch.
"""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from vsehub.cli.file_settings import FILES
from vsehub.components import conf_folder

BASH = """\
# Completion of vsehub for bash; in ~/.bashrc: source <(vsehub completion bash)
_vsehub() {
  local found word="${COMP_LINE:0:COMP_POINT}"
  mapfile -t COMPREPLY < <(vsehub completion --line "$word" 2>/dev/null)
  word="${word##* }"
  # Readline replaces what follows the last of these characters alone.
  if [[ "$word" == *=* && "$COMP_WORDBREAKS" == *=* ]]; then COMPREPLY=("${COMPREPLY[@]#"${word%=*}="}"); fi
  for found in "${COMPREPLY[@]}"; do
    if [[ "$found" == *[=/.] ]]; then compopt -o nospace 2>/dev/null; fi
  done
}
complete -F _vsehub vsehub
"""
ZSH = """\
#compdef vsehub
# Completion of vsehub for zsh; in ~/.zshrc, after compinit: source <(vsehub completion zsh)
_vsehub() {
  local -a found ends goes_on
  found=("${(@f)$(vsehub completion --line "${LBUFFER}" 2>/dev/null)}")
  ends=(${found:#*[=/.]})
  goes_on=(${(M)found:#*[=/.]})
  (( ${#ends} )) && compadd -Q -- $ends
  (( ${#goes_on} )) && compadd -Q -S '' -- $goes_on
}
compdef _vsehub vsehub
"""
FISH = """\
# Completion of vsehub for fish; in ~/.config/fish/config.fish: vsehub completion fish | source
complete -c vsehub -f -a '(vsehub completion --line (commandline -cp) 2>/dev/null)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
HELP = f"""\
Prints a script with which a shell completes what is typed: commands, groups, choices, keys and files.

usage: vsehub completion {{{",".join(SCRIPTS)}}}

  source <(vsehub completion bash)     in ~/.bashrc; for zsh in ~/.zshrc, after compinit
  vsehub completion fish | source      in ~/.config/fish/config.fish
"""
_OPTIONS = ("--help", "--cfg", "--multirun", "--config-dir=")
_OF_CFG = ("job", "hydra", "all")


def main(arguments: Sequence[str], commands: Sequence[str]) -> int:
    """Print the script of a shell, help, or what completes a line; returns the exit status.

    commands: all of vsehub's.
    """
    if len(arguments) == 2 and arguments[0] == "--line":
        print("\n".join(completed(arguments[1], commands)))
        return 0
    if len(arguments) == 1 and arguments[0] in SCRIPTS:
        print(SCRIPTS[arguments[0]], end="")
        return 0
    if {"--help", "-h"} & set(arguments):
        print(HELP, end="")
        return 0
    given = f"{arguments[0]!r} is not a shell that is known" if arguments else "no shell is named"
    print(
        f"vsehub completion: {given}; choose one of {', '.join(SCRIPTS)}, as in: source <(vsehub completion bash)",
        file=sys.stderr,
    )
    return 2


def completed(line: str, commands: Sequence[str]) -> list[str]:
    """The words that the last word of a line can become. line: all that was typed up to the cursor."""
    words = _words(line)
    *before, word = words
    if len(before) <= 1:
        return _beginning([*commands, "--help", "--version"], word)
    command = before[1]
    config = conf_folder() / f"{command.replace('-', '_')}.yaml"
    if command == "completion":
        return _beginning(list(SCRIPTS), word) if len(before) == 2 else []
    if not config.is_file():
        return []
    if before[-1] in ("--cfg", "-c"):
        return _beginning(_OF_CFG, word)
    if word.startswith("-") and "=" not in word:
        return _beginning(_OPTIONS, word)
    settings = CommandSettings(config, before[2:])
    key, sign, value = word.partition("=")
    if sign:
        return [f"{key}={one}" for one in settings.values(key, value)]
    found = [f"{name}=" for name in (*settings.groups, *settings.defaults) if name.startswith(word)]
    # Of a part's settings, such as loss.margin, the part alone until its name is there.
    cut = [
        one if "." not in one[len(word) :] or "." in word else f"{word}{one[len(word) :].partition('.')[0]}."
        for one in found
    ]
    return sorted(dict.fromkeys(cut)) + (_files(word) if command == "search" else [])


class CommandSettings:
    """The groups and settings of a command, as its yaml and those of the chosen parts have them.

    words: the arguments that were given, which may choose other parts. groups: name -> the choice. defaults: the values
    of the settings, by their dotted keys.
    """

    def __init__(self, config: Path, words: Sequence[str]):
        self._folder = config.parent
        given = dict(word.split("=", 1) for word in words if "=" in word)
        own = _read(config)
        self.groups: dict[str, str | None] = {}
        for entry in own.pop("defaults", []):
            for key, choice in entry.items() if isinstance(entry, dict) else ():
                group = key.removeprefix("optional ")
                if not group.startswith("override "):
                    self.groups[group] = given.get(group, choice)
        own.pop("hydra", None)
        self.defaults: dict[str, Any] = dict(_flat(own))
        for group, choice in self.groups.items():
            self.defaults |= dict(self._of_choice(group, choice))

    def values(self, key: str, begun: str) -> list[str]:
        """What a setting or a group can be, where it begins with `begun`."""
        if key in self.groups:
            folder = self._folder / key
            names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))
            return _beginning(sorted(names), begun)
        if key.split(".")[-1] in FILES:
            return _files(begun)
        if isinstance(self.defaults.get(key), bool):
            return _beginning(("true", "false"), begun)
        return []

    def _of_choice(self, group: str, choice: str | None) -> Iterator[tuple[str, Any]]:
        path = self._folder / group / f"{choice}.yaml"
        if choice is None or not path.is_file():
            return
        found = _read(path)
        for entry in found.pop("defaults", []):
            if isinstance(entry, str) and entry != "_self_" and not entry.startswith(("override", "/")):
                yield from self._of_choice(group, entry)
        for place in self.groups:  # a part that sets others too
            if isinstance(found.get(place), str):
                found.pop(place)
        yield from _flat(found, "" if _is_global(path) else f"{group}.")


def _is_global(path: Path) -> bool:
    """Whether the keys of a choice's yaml are whole, as Hydra's header says."""
    with path.open(encoding="utf-8") as file:
        return "@package _global_" in file.readline()


def _words(line: str) -> list[str]:
    """The words of a line, of which the last is being typed; a quote may be open in it."""
    for closing in ("", "'", '"'):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return words if line[-1:].strip() or closing else [*words, ""]
    return [line, ""]


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return found if isinstance(found, dict) else {}


def _flat(settings: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{key}.")
        elif not str(key).startswith("_"):
            yield f"{before}{key}", value


def _beginning(words: Sequence[str], begun: str) -> list[str]:
    return [word for word in words if word.startswith(begun)]


def _files(begun: str) -> list[str]:
    """The files and folders whose paths begin so; folders end in a slash."""
    folder, name = os.path.split(begun)
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder) or "."), key=lambda one: one.name)
    except OSError:
        return []
    shown = [one for one in entries if one.name.startswith(name) and (name.startswith(".") or one.name[0] != ".")]
    return [os.path.join(folder, one.name) + ("/" if one.is_dir() else "") for one in shown]
