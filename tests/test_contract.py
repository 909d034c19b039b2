"""What every choice of every config group must obey; a new yaml is found and tested as it lies."""

import inspect
from functools import cache

import pytest
import torch
from choices import choice_names, choice_node
from hydra import compose, initialize_config_dir
from hydra.utils import get_object
from looped import looped
from omegaconf import OmegaConf
from test_size import CONF
from tiny_bert import tiny_bert

from vsehub.checks import InputError
from vsehub.cli.nodes import build
from vsehub.components import nested_settings
from vsehub.evaluation import Protocol
from vsehub.sets import Sets, concatenated
from vsehub.types import NeighborStats

GROUPS = {
    "loss": "train",
    "image_encoder": "train",
    "text_encoder": "train",
    "similarity": "train",
    "criterion": "evaluate",
    "protocol": "evaluate",
    "bank": "train",
    "optimizer": "train",
    "scheduler": "train",
    "trainer": "train",
    "callbacks": "train",
    "logger": "train",
    "data": "train",
    "recipe": "train",
    "solver": "train",
}
IMAGE_SHAPES = {"adapter": (16,), "image_features": (12,), "image_regions": (4, 12), "inception_resnet_v2": (3, 96, 96)}
IMAGE_MODELS = {"torchvision": "resnet18", "timm": "resnet10t"}
TOWERS = ("open_clip", "hf")  # encoders/pretrained/test_towers.py
LARGE = ("inception_resnet_v2", "resnet152", "vgg19")  # of the class of the two above


ALL = [(group, name) for group in GROUPS for name in choice_names(group)]


@cache
def choice(group, name):
    """The node of a choice of a group, in the configuration of its command with the default choices of the others."""
    cfg = composed(GROUPS[group])
    default = cfg[group]
    cfg[group] = choice_node(group, name)
    node = cfg[group]
    cfg[group] = default
    return node


@cache
def composed(command, *overrides):
    """The configuration of a command, the run's folder filled in as Hydra would."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(command, [*overrides], return_hydra_config=True)
    OmegaConf.set_struct(cfg, False)
    cfg.hydra.runtime.output_dir = "somewhere"
    return cfg


def components(group, name):
    """The nodes of a choice that are built: callbacks are several, `bank: none` is not one."""
    node = choice(group, name)
    nodes = node.values() if group == "callbacks" else [node] if node else []
    return [inner for inner in nodes if inner] + [inner for node in nodes if node for inner in inner_components(node)]


def inner_components(node):
    """The settings of a component's arguments that are objects of one class, as nodes of their own."""
    component = get_object(node["_target_"]) if "_target_" in node else None
    kinds = {} if component is None else nested_settings(component)
    settings = {name: OmegaConf.to_container(node.get(name) or OmegaConf.create({}), resolve=False) for name in kinds}
    return [
        OmegaConf.create(settings[name] | {"_target_": f"{kind.__module__}.{kind.__name__}"})
        for name, kind in kinds.items()
    ]


def parameters(node):
    """The constructor's named parameters; a partial lacks its first, which the caller gives."""
    arguments = inspect.signature(get_object(node["_target_"])).parameters.values()
    named = [argument for argument in arguments if argument.kind not in (argument.VAR_KEYWORD, argument.VAR_POSITIONAL)]
    return {argument.name: argument for argument in (named[1:] if node.get("_partial_") else named)}


def instantiated(group, name, **arguments):
    return build(group, choice(group, name), **arguments)


def test_every_folder_is_in_the_contract():
    folders = {path.name for path in CONF.iterdir() if path.is_dir()}
    assert folders - {"experiment", "row", "sweep", "hydra", "joint_space", "debug"} == set(GROUPS)


@looped(("group", "name"), [case for case in ALL if case[0] != "recipe"])
def test_keys_are_the_constructors_parameters(group, name):
    for node in components(group, name):
        keys = set(node.keys()) - {"_target_", "_partial_"}
        accepted = set(parameters(node))
        if name == "wandb":  # Lightning hands further settings on to wandb.init
            accepted |= {"entity", "group", "tags"}
        assert keys <= accepted, f"{keys - accepted} are no arguments of {node['_target_']}"


@looped(("group", "name"), [case for case in ALL if case[0] not in ("recipe", "trainer", "logger")])
def test_defaults_in_code_and_yaml_agree(group, name):
    """A stranger who leaves the yaml aside gets the same component; of several yamls of a class, that of one."""
    for node in components(group, name):
        if not node["_target_"].startswith("vsehub.") or group == "protocol":
            continue
        siblings = [node, *(other for sibling in choice_names(group) for other in components(group, sibling))]
        named = [differing(sibling) for sibling in siblings if sibling["_target_"] == node["_target_"]]
        assert min(named, key=len) == [], f"{name}: {named[0]}"


def differing(node):
    """The settings that a yaml sets otherwise than the constructor does."""
    raw = OmegaConf.to_container(node, resolve=False)
    return [
        key
        for key, parameter in parameters(node).items()
        if key in raw
        and parameter.default is not parameter.empty
        and not (isinstance(raw[key], str) and ("${" in raw[key] or raw[key] == "???"))
        and raw[key] != (list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default)
        and not (parameter.default is None and isinstance(raw[key], dict))  # names that the constructor fills in
    ]


@looped("name", choice_names("recipe"))
def test_a_recipe_is_a_losss(name):
    assert name in choice_names("loss")
    plain, cfg = composed("train", "loss=infonce"), composed("train", f"loss={name}")
    recipe = OmegaConf.load(CONF / "recipe" / f"{name}.yaml")
    for group, settings in recipe.items():
        assert set(settings) <= set(plain[group]), f"{group}: {set(settings) - set(plain[group])} are no settings of it"
        assert {key: cfg[group][key] for key in settings} == dict(settings)


def batch(n, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    scores = (torch.rand(n, n, generator=generator) * 1.6 - 0.6).to(dtype)
    ids = torch.arange(n)[torch.randperm(n, generator=generator)] // 2
    stats = [torch.rand(n, 12, generator=generator).sort(dim=1, descending=True).values.to(dtype) for _ in range(2)]
    centralities = torch.rand(2, n, generator=generator).to(dtype)
    return scores, ids[:, None] == ids[None, :], NeighborStats(*stats, *centralities)


def value_and_gradient(loss, scores, positives, stats=None):
    scores = scores.clone().requires_grad_()
    value = loss(scores, positives, stats)["loss"]
    return value.detach(), torch.autograd.grad(value, scores)[0]


def permuted(stats, order):
    return None if stats is None else NeighborStats(*(side[order] for side in stats))


class TestLoss:
    @looped("name", choice_names("loss"))
    @looped("dtype", [torch.float32, torch.bfloat16])
    @looped("n", [1, 2, 9])
    def test_value_and_gradient_are_finite(self, name, n, dtype):
        loss = instantiated("loss", name)
        scores, positives, stats = batch(n, dtype)
        for neighbors in (None, stats):
            value, gradient = value_and_gradient(loss, scores, positives, neighbors)
            assert value.shape == ()
            assert value.dtype == torch.float32
            assert torch.isfinite(value)
            assert torch.isfinite(gradient).all()
            assert gradient.dtype == dtype
            assert n < 9 or gradient.abs().sum() > 0

    @looped("name", choice_names("loss"))
    def test_the_order_of_the_pairs_is_nothing(self, name):
        loss = instantiated("loss", name)
        scores, positives, stats = batch(9)
        order = torch.randperm(9, generator=torch.Generator().manual_seed(1))
        for neighbors in (None, stats):
            value, gradient = value_and_gradient(loss, scores, positives, neighbors)
            moved, moved_gradient = value_and_gradient(
                loss, scores[order][:, order], positives[order][:, order], permuted(neighbors, order)
            )
            torch.testing.assert_close(moved, value)
            torch.testing.assert_close(moved_gradient, gradient[order][:, order])

    @looped("name", choice_names("loss"))
    def test_other_positives_are_no_negatives(self, name):
        loss = instantiated("loss", name)
        scores, positives, stats = batch(9)
        others = positives & ~torch.eye(9, dtype=torch.bool)
        assert others.any()
        for neighbors in (None, stats):
            before, gradient = value_and_gradient(loss, scores, positives, neighbors)
            after, _ = value_and_gradient(loss, scores + 5.0 * others, positives, neighbors)
            assert torch.equal(before, after)
            assert (gradient[others] == 0).all()

    @looped("name", choice_names("loss"))
    def test_neighbours_count_where_they_are_asked_for(self, name):
        loss = instantiated("loss", name)
        scores, positives, stats = batch(9)
        _, without = value_and_gradient(loss, scores, positives)
        _, with_them = value_and_gradient(loss, scores, positives, stats)
        assert torch.equal(without, with_them) != loss.takes_neighbors

    @looped("name", choice_names("loss"))
    def test_nothing_is_made_on_another_device(self, name):
        """The device meta refuses tensors of the CPU beside its own, and waits for no number."""
        loss = instantiated("loss", name).to("meta")
        scores, positives, stats = batch(9)
        for neighbors in (None, NeighborStats(*(side.to("meta") for side in stats))):
            assert all(
                tensor.is_meta
                for tensor in value_and_gradient(loss, scores.to("meta"), positives.to("meta"), neighbors)
            )

    @looped("name", choice_names("loss"))
    def test_a_better_pair_is_a_lower_loss(self, name):
        loss = instantiated("loss", name)
        scores, positives, _ = batch(9)
        better = scores + 0.1 * torch.eye(9)
        assert loss(better, positives)["loss"] < loss(scores, positives)["loss"]


def further_scores(criterion, items, generator):
    """Scores (4, M) of reference items, where a criterion needs them."""
    needed = criterion.correction.reference_items_as == "rows"
    return torch.rand(4, items, generator=generator, dtype=torch.float64) if needed else None


class TestCriterion:
    @looped("name", choice_names("criterion"))
    def test_rescore(self, name):
        criterion = instantiated("criterion", name)
        generator = torch.Generator().manual_seed(0)
        scores, reference = torch.rand(7, 13, generator=generator), torch.rand(5, 13, generator=generator)
        further = further_scores(criterion, 13, generator)
        for other in (None, reference) if criterion.inductive else (None,):
            answer = criterion.rescore(scores, other, reference_item_scores=further)
            assert answer.shape == (7, 13)
            assert torch.isfinite(answer).all()
        with pytest.raises(
            InputError, match="reference_scores is empty" if criterion.inductive else "no inductive form"
        ):
            criterion.rescore(scores, reference[:0])

    @looped("name", choice_names("criterion"))
    def test_the_order_of_items_and_queries_is_nothing(self, name):
        criterion = instantiated("criterion", name)
        generator = torch.Generator().manual_seed(0)
        scores = torch.rand(7, 13, generator=generator, dtype=torch.float64)
        items, queries = torch.randperm(13, generator=generator), torch.randperm(7, generator=generator)
        further = further_scores(criterion, 13, generator)
        torch.testing.assert_close(
            criterion.rescore(
                scores[queries][:, items], reference_item_scores=None if further is None else further[:, items]
            ),
            criterion.rescore(scores, reference_item_scores=further)[queries][:, items],
        )

    @looped("name", choice_names("criterion"))
    def test_the_nearest_alone_give_the_terms(self, name):
        criterion = instantiated("criterion", name).correction
        if not criterion.terms_from_k_nearest:
            return
        reference = torch.rand(40, 13, generator=torch.Generator().manual_seed(0)).mul(20).round() / 20  # with ties
        for k in {settings["k"] for settings in criterion.grid()} | {criterion.k}:
            changed = criterion.with_parameters(k=min(k, 40))
            nearest = reference.sort(dim=0, descending=True).values[: changed.k]
            torch.testing.assert_close(changed.item_terms(nearest), changed.item_terms(reference), rtol=1e-6, atol=0)


def encoding(takes, n, seed):
    """n vectors, or n sets of one to four."""
    generator = torch.Generator().manual_seed(seed)
    if takes == "vectors":
        return torch.randn(n, 8, generator=generator)
    lengths = torch.randint(1, 5, (n,), generator=generator)
    return Sets(torch.randn(int(lengths.sum()), 8, generator=generator), lengths)


@pytest.mark.parametrize("name", choice_names("similarity"))
def test_similarity(name):
    similarity = instantiated("similarity", name)
    assert similarity.takes in ("vectors", "sets")
    images, texts = (encoding(similarity.takes, n, seed) for n, seed in ((5, 0), (7, 1)))
    scores = similarity(images, texts)
    assert scores.shape == (5, 7)
    assert similarity.largest is None or (scores <= similarity.largest + 1e-6).all()
    torch.testing.assert_close(similarity(images[2:3], texts[4:]), scores[2:3, 4:])
    if similarity.inner_product:
        torch.testing.assert_close(similarity.vectors(images) @ similarity.vectors(texts).T, scores)
    if similarity.takes == "vectors":
        assert similarity.to("meta")(images.to("meta"), texts.to("meta")).is_meta


def rows_alone_equal_rows_together(encoder, *inputs, waits=True):
    """Eval mode, with and without gradient: what a row gives must not depend on its company.

    waits: whether the encoder waits for a number, which the device meta has not.
    """
    for gradient in (True, False):
        with torch.set_grad_enabled(gradient):
            together = encoder(*inputs)
            rows = [encoder(*(side[row : row + 1] for side in inputs)) for row in range(len(inputs[0]))]
        alone = concatenated(rows)
        assert len(together) == len(inputs[0])
        assert isinstance(together, Sets) == (encoder.gives == "sets")
        if isinstance(together, Sets):
            assert torch.equal(alone.lengths, together.lengths)
            alone, together = alone.vectors, together.vectors
        assert together.shape[1:] == (encoder.dim or 16,)
        torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)
        assert (together[0] - together[-1]).abs().sum() > 0
    if not waits:
        assert encoder.to("meta")(*(side.to("meta") for side in inputs)).is_meta


@looped("name", [choice_name for choice_name in choice_names("image_encoder") if choice_name not in TOWERS])
def test_image_encoder(name):
    torch.manual_seed(0)
    shape = IMAGE_SHAPES.get(name, (3, 64, 64))
    node = choice("image_encoder", name)
    takes = inspect.signature(get_object(node["_target_"])).parameters
    random = {"pretrained": False} if "pretrained" in takes else {}
    model = {"model": IMAGE_MODELS[name]} if name in IMAGE_MODELS else {}
    with torch.device("meta" if name in LARGE else "cpu"):
        sized = {"dim": 16} if "dim" in takes else {}
        encoder = build("image_encoder", node, image_shape=list(shape), **sized, **random, **model)
    if name in LARGE:  # that it is built is all
        return
    encoder(torch.rand(4, *shape))  # in training mode, so that running statistics are not their start
    rows_alone_equal_rows_together(encoder.eval(), torch.rand(5, *shape), waits=name == "image_regions")


@pytest.mark.parametrize(
    "name", [choice_name for choice_name in choice_names("text_encoder") if choice_name not in TOWERS]
)
def test_text_encoder(name, tmp_path):
    torch.manual_seed(0)
    node = choice("text_encoder", name)
    takes = inspect.signature(get_object(node["_target_"])).parameters
    if "text_shape" in takes:
        sized = {"dim": 16} if "dim" in takes else {}
        encoder = build("text_encoder", node, **sized, text_shape=[16]).eval()
        rows = torch.rand(5, 16), torch.ones(5, dtype=torch.int64)
        return rows_alone_equal_rows_together(encoder, *rows, waits=False)
    arguments = {"model": tiny_bert(tmp_path)} if "model" in set(node) else {}
    encoder = build("text_encoder", node, dim=16, vocabulary_size=20, **arguments).eval()
    lengths = torch.tensor([6, 2, 4, 1])
    texts = torch.randint(1, 20, (4, 6)).masked_fill(torch.arange(6) >= lengths[:, None], 0)
    waits = name in ("text_gru_gpo", "text_pretrained", "text_scan")
    rows_alone_equal_rows_together(encoder, texts, lengths, waits=waits)


def test_protocols():
    protocols = {name: instantiated("protocol", name) for name in choice_names("protocol")}
    assert all(isinstance(protocol, Protocol) and protocol.name == name for name, protocol in protocols.items())
    wanted = {"c1": (1000, 1), "c2": (1000, 5), "full5k": (5000, 1), "single": (None, 1)}
    assert (
        wanted.items() <= {name: (protocol.fold_images, protocol.folds) for name, protocol in protocols.items()}.items()
    )
