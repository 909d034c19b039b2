"""The choices of the config groups below conf/."""

from omegaconf import OmegaConf
from test_size import CONF, read


def choice_names(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def choice_node(group, name):
    """The node of a choice, merged with those that its defaults list names."""
    node = read(CONF / group / f"{name}.yaml")
    merged = [name for name in node.pop("defaults", []) if isinstance(name, str)]  # `read` took in the blocks
    merged += [] if "_self_" in merged else ["_self_"]
    return OmegaConf.merge(*(node if other == "_self_" else choice_node(group, other) for other in merged))
