"""Networks of torchvision and timm as encoders: their features, their weights, what is trained and what is refused."""

from itertools import chain
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
import torchvision
from looped import looped
from safetensors.torch import save_file
from torch import nn

from vsehub.checks import InputError
from vsehub.encoders import ImageBackbone, ImageFeatures
from vsehub.encoders.pretrained.networks import Backbone, weights_hash
from vsehub.training.module import parameter_groups

SHAPE = (3, 64, 64)
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


@pytest.fixture(scope="module")
def resnet():
    torch.manual_seed(0)
    network = torchvision.models.resnet18()
    network(torch.rand(8, *SHAPE))  # so that the batch statistics are not what they are at the start
    return network.eval()


@pytest.fixture(scope="module")
def weights(resnet, tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(resnet.state_dict(), path)
    return str(path)


def pictures(*shape):
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


@torch.no_grad()
def test_features_regions_and_crops_are_the_networks_own(resnet, weights):
    backbone, images = Backbone(SHAPE, "torchvision", "resnet18", weights=weights), pictures(3, *SHAPE)
    last = (images / 255 - MEAN[:, None, None]) / STD[:, None, None]
    for part in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"):
        last = getattr(resnet, part)(last)
    torch.testing.assert_close(backbone(images), last.mean(dim=(2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(backbone(images / 255), backbone(images), rtol=1e-5, atol=1e-6)
    rows = torch.stack([last[:, :, 0, 0], last[:, :, 0, 1], last[:, :, 1, 0], last[:, :, 1, 1]], dim=1)
    torch.testing.assert_close(backbone.regions(images, 2), rows, rtol=1e-4, atol=1e-5)
    crops = pictures(2, 3, *SHAPE)
    expected = torch.stack([backbone(crop).mean(dim=0) for crop in crops])
    torch.testing.assert_close(Backbone((3, *SHAPE), "torchvision", "resnet18", weights=weights)(crops), expected)


@torch.no_grad()
@pytest.mark.parametrize(
    ("library", "model", "side"),
    [
        *(pytest.param("torchvision", model, 64, marks=pytest.mark.long) for model in ("densenet121", "swin_t")),
        ("torchvision", "mobilenet_v3_small", 64),
        ("timm", "resnet10t", 64),
        ("timm", "test_vit", 160),
    ],
)
def test_classifiers_lose_their_last_layer(library, model, side):
    """What went into the last layer comes out, whatever it is called; the map is the one before the pooling."""
    import timm  # here, since it takes seconds and would in each process that collects this file

    backbone, images = Backbone((3, side, side), library, model, pretrained=False), torch.rand(2, 3, side, side)
    with torch.device("meta"):  # drawing the weights of another network takes most of the time
        full = (timm.create_model if library == "timm" else torchvision.models.get_model)(model).eval()
    full.load_state_dict(backbone.network.state_dict(), strict=False, assign=True)
    inputs, last = [], [part for part in full.modules() if isinstance(part, nn.Linear)][-1].to_empty(device="cpu")
    last.register_forward_hook(lambda part, arguments, out: inputs.append(arguments[0]))
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in backbone.mean_std)
    full((images - mean) / std)
    torch.testing.assert_close(backbone(images), inputs[0], rtol=1e-4, atol=1e-4)
    assert backbone.size == inputs[0].shape[1]
    if model in ("resnet10t", "swin_t"):
        torch.testing.assert_close(backbone.regions(images, 1)[:, 0], backbone(images), rtol=1e-4, atol=1e-4)
    elif library == "timm":
        patches = full.forward_features((images - mean) / std)[:, 1:]
        torch.testing.assert_close(backbone.regions(images, 10), patches, rtol=1e-4, atol=1e-4)


def test_a_frozen_backbone_stays_as_it_is_and_a_tuned_one_learns(weights):
    encoder, images = ImageBackbone(SHAPE, "resnet18", 8, weights=weights).train(), torch.rand(6, *SHAPE)
    before = weights_hash(encoder.backbone)
    encoder(images).sum().backward()
    assert weights_hash(encoder.backbone) == before, "batch statistics have moved"
    trained = [name for name, parameter in encoder.named_parameters() if parameter.grad is not None]
    assert trained == ["head.linear.weight", "head.linear.bias"]
    for regions in (None, 2):
        tuned = ImageBackbone(SHAPE, "resnet18", 8, weights=weights, tune=True, learning_rate=1e-5, regions=regions)
        vectors = tuned(images)
        (vectors.vectors if regions else vectors).square().sum().backward()
        parameters = list(tuned.backbone.parameters())
        assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in parameters)
        rated = [group["params"] for group in parameter_groups(tuned) if group.get("lr") == 1e-5]
        assert set(map(id, chain(*rated))) == set(map(id, parameters))


def test_the_head_starts_as_on_extracted_features_and_a_checkpoint_rebuilds_it(weights):
    torch.manual_seed(5)
    encoder = ImageBackbone(SHAPE, "resnet18", 8, weights=weights).eval()
    after = torch.rand(3)
    torch.manual_seed(5)
    alone, images = ImageFeatures((512,), 8), pictures(4, *SHAPE)
    assert torch.equal(torch.rand(3), after)
    assert torch.equal(alone(encoder.features(images)), encoder(images))
    again = ImageBackbone(SHAPE, **({"model": "resnet18", "dim": 8, "weights": "gone"} | ImageBackbone.rebuilt)).eval()
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(again(images), encoder(images))


@looped("form", ["state_dict", "old", "safetensors"])
def test_forms_of_weights(resnet, weights, tmp_path, form):
    """One without its head and its counts of batches, as older files are."""
    state, path = resnet.state_dict(), tmp_path / ("file.safetensors" if form == "safetensors" else "file.pth")
    old = {key: state[key] for key in state if not key.startswith("fc.") and not key.endswith("num_batches_tracked")}
    save_file(state, path) if form == "safetensors" else torch.save(old if form == "old" else {form: state}, path)
    loaded, expected = (Backbone(SHAPE, "torchvision", "resnet18", weights=file) for file in (str(path), weights))
    assert torch.equal(loaded(pictures(2, *SHAPE)), expected(pictures(2, *SHAPE)))
    assert weights_hash(loaded) == weights_hash(expected)
    with torch.no_grad():
        next(loaded.parameters())[0, 0, 0, 0] += 1e-6
    assert weights_hash(loaded) != weights_hash(expected)


def test_other_weights_are_refused(resnet, weights, tmp_path):
    torch.save(resnet.state_dict() | {"layer4.1.conv2.weight": torch.zeros(512, 4, 3, 3)}, tmp_path / "wide.pth")
    torch.save({"epoch": 3}, tmp_path / "other.pth")
    for suffix in ("pth", "safetensors"):
        (tmp_path / f"half.{suffix}").write_bytes(Path(weights).read_bytes()[:100_000])
    files = ("wide.pth", "other.pth", "half.pth", "half.safetensors", "absent.pth")
    for model, path in (("resnet34", weights), *(("resnet18", tmp_path / file) for file in files)):
        with pytest.raises(InputError, match=rf"^weights: .*{Path(path).name}"):
            Backbone(SHAPE, "torchvision", model, weights=str(path))


def test_without_a_network_the_ways_on_are_named(monkeypatch, tmp_path):
    def unreachable(*_, **__):
        raise URLError("Name or service not known")

    monkeypatch.setattr("torch.hub.urlopen", unreachable)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(ConnectionError, match=r"resnet18 .*image_encoder=image_cnn"):
        Backbone(SHAPE, "torchvision", "resnet18")


@looped(
    "change",
    [
        {"library": "keras"},
        {"model": "hf-hub:evil/x", "library": "timm"},
        {"model": "local-dir:/any", "library": "timm"},
        {"model": "resnet20"},
        {"image_shape": (2048,)},
        {"pooling": "mean"},
        {"regions": 0},
        {"regions": 3},
        {"regions": 1, "image_shape": (10, *SHAPE)},
    ],
)
def test_what_is_refused(change):
    with pytest.raises(InputError, match=next(iter(change)).partition("_")[0]):
        ImageBackbone(**{"image_shape": SHAPE, "model": "resnet18", "dim": 8, "pretrained": False} | change)
