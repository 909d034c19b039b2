"""The settings that belong to a run's recipe, and those that distinguish two runs.

Classes are compared by name, without their path, so that moving a file changes no recipe.
"""

import re

# Settings that may differ between two runs of one recipe: seeds, names, paths, the machine's settings, and everything
# after training. The data are identified by their fingerprint, not by their path.
NOT_RECIPE = re.compile(
    r"^(name|run_name|label|study|resume|final_split|criterion_name|(logger|hydra|criterion|protocol)(\..*)?)$"
    r"|^data\.(.*[._])?(root|dir|folder|path|file|name)$|^data\.noise(\..*)?$"
    r"|^data\.(json|table|images|texts|pairs|shards|image_ids|text_ids|splits(\..*)?)$"
    r"|^trainer\.(enable_.*|max_time|log_every_n_steps|accelerator|devices|num_nodes|strategy|sync_batchnorm|num_sanity_val_steps|default_root_dir)$"
    r"|(^|\.)(seed|out|output_dir|run_folder|dirpath|save_dir|workers|num_workers|eval_batch_size)$|^loader\.chunk$"
)
# Settings that are not part of a recipe but affect a run's results: its seeds, what is measured at its end, and the
# path of its data, which identifies them before they are read.
COUNTS = re.compile(r"(^|\.)seed$|^final_split$|^(criterion|protocol)(\.|$)|^data\.(?!name$)")
_ADDED = "architecture"  # follows from other settings; written to run.json only


def in_recipe(key: str) -> bool:
    """Return True if a setting ("optimizer.lr") belongs to the recipe; runs of one recipe differ only in their seed."""
    return not NOT_RECIPE.search(key)


def decides(key: str) -> bool:
    """Return True if a setting, or one nested in it, affects a run's results, unlike output folders."""
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
    """A plain value, each `_target_` within it replaced by the class's name."""
    if isinstance(value, dict):
        return {key: class_name(one) if key == "_target_" else named_classes(one) for key, one in value.items()}
    return [named_classes(one) for one in value] if isinstance(value, list | tuple) else value
