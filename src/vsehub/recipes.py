"""Which settings of a run decide what: those of its recipe, and those that tell two runs apart.

A class counts by its name alone, so that moving its file changes no recipe.
"""

import re

# What may differ between two runs of one recipe: seeds, names, places, the machine's settings, and all that comes
# after training. Which data a path holds is told by the data's fingerprint.
NOT_RECIPE = re.compile(
    r"^(name|run_name|label|study|resume|retry_failed|final_split|criterion_name|(logger|hydra|criterion|protocol)(\..*)?)$"
    r"|^data\.(.*[._])?(root|dir|folder|path|file|name|cache)$|^data\.noise(\..*)?$"
    r"|^trainer\.(enable_.*|log_every_n_steps|accelerator|devices|num_sanity_val_steps|default_root_dir)$"
    r"|(^|\.)(seed|out|output_dir|run_folder|dirpath|save_dir|workers|num_workers|eval_batch_size)$"
)
# Of what is no part of a recipe this decides a run nevertheless: its seeds, what is measured at its end, and its data,
# which only their place tells apart before they are read.
COUNTS = re.compile(r"(^|\.)seed$|^final_split$|^(criterion|protocol)(\.|$)|^data\.(?!(cache|name)$)")
_ADDED = "architecture"  # told by other settings, and written to run.json alone


def in_recipe(key: str) -> bool:
    """Whether a setting ("optimizer.lr") belongs to the recipe: runs of one recipe differ by seed alone."""
    return not NOT_RECIPE.search(key)


def decides(key: str) -> bool:
    """Whether a setting, or any below it, decides what a run gives: no output folder, name or machine setting does."""
    return key != _ADDED and bool(COUNTS.search(key) or in_recipe(key))


def flatten(config: object, prefix: str = "") -> dict[str, object]:
    """A nested configuration as {"optimizer.lr": 0.001, ...}; lists stay whole, classes lose their path."""
    if not isinstance(config, dict):
        return {prefix: class_name(config) if prefix.rpartition(".")[2] == "_target_" else named_classes(config)}
    return {
        name: leaf
        for key, value in config.items()
        for name, leaf in flatten(value, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def class_name(target: object) -> object:
    """ "HAL" of "vsehub.losses.HAL"; anything else as it is."""
    return target.rpartition(".")[2] if isinstance(target, str) else target


def named_classes(value: object) -> object:
    """A plain value, each `_target_` within it by the class's name alone."""
    if isinstance(value, dict):
        return {key: class_name(one) if key == "_target_" else named_classes(one) for key, one in value.items()}
    return [named_classes(one) for one in value] if isinstance(value, list | tuple) else value
