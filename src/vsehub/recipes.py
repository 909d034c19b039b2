"""The settings that belong to a run's recipe, that distinguish two runs, and that a resumed run may change."""

import re

# Settings that a resumed run may change: paths of the data, since a fingerprint identifies the data themselves, and
# settings of the machine.
MOVABLE = re.compile(
    r"^data\.(.*[._])?(root|dir|folder|path|file)$|^data\.noise\.index$"
    r"|^data\.(json|table|images|texts|pairs|shards|image_ids|text_ids|splits(\..*)?)$"
    r"|^trainer\.(enable_.*|max_time|log_every_n_steps|accelerator|devices|num_nodes|strategy|sync_batchnorm|num_sanity_val_steps|default_root_dir)$"
    r"|^logger(\.|$)|(^|\.)(workers|num_workers|eval_batch_size)$|^(compile|loader\.(chunk|resident))$"
)
# Further settings that may differ between runs of one recipe: seeds, names, folders, and everything after training.
NOT_RECIPE = re.compile(
    r"^(name|run_name|label|study|resume|retrain|trust|final_split|criterion_name|(hydra|criterion|protocol)(\..*)?)$"
    r"|^data\.(.*[._])?name$|^data\.noise(\..*)?$"
    r"|(^|\.)(seed|out|output_dir|run_folder|dirpath|save_dir)$"
)
# Settings that are not part of a recipe but affect a run's results: its seeds, what is measured at its end, and the
# paths of its data, which have no fingerprint before they are read.
AFFECTS_RESULTS = re.compile(r"(^|\.)seed$|^final_split$|^(criterion|protocol)(\.|$)|^data\.(?!name$)")
_DERIVED = "architecture"  # follows from other settings; written to run.json only


def in_recipe(key: str) -> bool:
    """Return True if all runs of a recipe share a setting, such as "optimizer.lr" but not "seed"."""
    return not (NOT_RECIPE.search(key) or MOVABLE.search(key))


def affects_results(key: str) -> bool:
    """Return True if a setting, or one nested in it, affects a run's results, unlike output folders."""
    return key != _DERIVED and bool(AFFECTS_RESULTS.search(key) or in_recipe(key))


def flatten(config: object, prefix: str = "") -> dict[str, object]:
    """A nested configuration as {"optimizer.lr": 0.001, ...}; lists stay whole."""
    if not isinstance(config, dict):
        return {prefix: config}
    return {
        name: leaf
        for key, value in config.items()
        for name, leaf in flatten(value, f"{prefix}.{key}" if prefix else str(key)).items()
    }
