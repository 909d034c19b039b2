"""Networks of torchvision and timm as encoders: their features, their weights, what is trained and what is refused."""

import pytest
import torch
import torchvision
from looped import looped
from safetensors.torch import save_file
from torch import nn

from vsehub.checks import InputError
from vsehub.encoders import ImageBackbone, ImageFeatures
from vsehub.encoders.pretrained.networks import Backbone, vision_model
from vsehub.sets import Sets
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


def by_hand(resnet, pixels):
    """The last map (N, 512, 2, 2), written out."""
    found = (pixels - MEAN[:, None, None]) / STD[:, None, None]
    for part in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"):
        found = getattr(resnet, part)(found)
    return found


def pictures(*shape):
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


@torch.no_grad()
def test_features_and_regions_are_the_networks_own(resnet, weights):
    backbone, images = Backbone(SHAPE, "torchvision", "resnet18", weights=weights), pictures(3, *SHAPE)
    last = by_hand(resnet, images / 255)
    torch.testing.assert_close(backbone(images), last.mean(dim=(2, 3)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(backbone(images / 255), backbone(images), rtol=1e-5, atol=1e-6)
    rows = torch.stack([last[:, :, 0, 0], last[:, :, 0, 1], last[:, :, 1, 0], last[:, :, 1, 1]], dim=1)
    torch.testing.assert_close(backbone.regions(images, 2), rows, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(backbone.regions(images, 1)[:, 0], backbone(images), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_crops_are_averaged(weights):
    images = pictures(2, 10, *SHAPE)
    whole = Backbone((10, *SHAPE), "torchvision", "resnet18", weights=weights)
    single = Backbone(SHAPE, "torchvision", "resnet18", weights=weights)
    expected = torch.stack([sum(single(images[n, c : c + 1])[0] for c in range(10)) / 10 for n in range(2)])
    torch.testing.assert_close(whole(images), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(InputError, match="are crops"):
        whole.regions(images, 2)


@torch.no_grad()
@pytest.mark.parametrize(
    "model", ["alexnet", "densenet121", "mobilenet_v3_small", "squeezenet1_1", "vit_b_32", "swin_t"]
)
def test_torchvisions_classifiers_lose_their_last_layer(model):
    """What went into the last layer comes out, whatever torchvision calls it; the map is the one before the pooling."""
    size = 224 if model == "vit_b_32" else 64
    backbone, images = Backbone((3, size, size), "torchvision", model, pretrained=False), torch.rand(2, 3, size, size)
    full, seen = torchvision.models.get_model(model).eval(), []
    full.load_state_dict(backbone.network.state_dict(), strict=False)
    last = [part for part in full.modules() if isinstance(part, nn.Linear) or model == "squeezenet1_1"]
    last = full.classifier[1] if model == "squeezenet1_1" else last[-1]
    last.register_forward_hook(lambda part, given, out: seen.append(given[0]))
    full((images - MEAN[:, None, None]) / STD[:, None, None])
    expected = seen[0].relu().mean(dim=(2, 3)) if model == "squeezenet1_1" else seen[0]
    torch.testing.assert_close(backbone(images), expected, rtol=1e-4, atol=1e-4)
    assert backbone.size == expected.shape[1]
    regions = backbone.regions(images, 1)[:, 0]
    if model in ("densenet121", "swin_t"):
        torch.testing.assert_close(regions, backbone(images), rtol=1e-4, atol=1e-4)
    assert regions.isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("model", ["resnet10t", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224"])
def test_timms_models(model):
    import timm  # here, since it takes seconds and would in each process that collects this file

    size = 64 if model == "resnet10t" else 224
    backbone, images = Backbone((3, size, size), "timm", model, pretrained=False), torch.rand(2, 3, size, size)
    full = timm.create_model(model).eval()
    full.load_state_dict(backbone.network.state_dict(), strict=False)
    settings = timm.data.resolve_model_data_config(full)
    mean, std = (torch.tensor(settings[name])[:, None, None] for name in ("mean", "std"))
    last = full.forward_features((images - mean) / std)
    torch.testing.assert_close(backbone(images), full.forward_head(last, pre_logits=True), rtol=1e-4, atol=1e-4)
    maps = {
        "resnet10t": lambda: last.flatten(2).transpose(1, 2),
        "vit_tiny_patch16_224": lambda: last[:, 1:],
        "swin_tiny_patch4_window7_224": lambda: last.flatten(1, 2),
    }
    expected = maps[model]()
    side = int(expected.shape[1] ** 0.5)
    torch.testing.assert_close(backbone.regions(images, side), expected, rtol=1e-4, atol=1e-4)


def test_a_map_without_rows_and_columns():
    backbone = Backbone((3, 224, 224), "timm", "levit_128s", pretrained=False)
    backbone.network.forward_features = lambda pixels: torch.zeros(len(pixels), 5, 384)
    backbone.network.num_prefix_tokens = 0
    with pytest.raises(InputError, match=r"levit_128s has no feature map of rows and columns \(.* \(5, 384\)"):
        backbone.regions(torch.rand(1, 3, 224, 224), 2)


class TestTraining:
    def test_a_frozen_backbone_stays_as_it_is(self, weights):
        encoder = ImageBackbone(SHAPE, "resnet18", 8, weights=weights).train()
        before = encoder.backbone.weights_hash()
        images = torch.rand(6, *SHAPE)
        encoder(images).sum().backward()
        assert not encoder.features(images).requires_grad
        assert encoder.backbone.weights_hash() == before, "batch statistics have moved"
        assert [name for name, one in encoder.named_parameters() if one.grad is not None] == [
            "head.linear.weight",
            "head.linear.bias",
        ]
        assert encoder.own_rates() == []
        assert [len(group["params"]) for group in parameter_groups(encoder)] == [1, 1]

    @pytest.mark.parametrize("regions", [None, 2])
    def test_a_tuned_one_learns_at_its_own_rate(self, weights, regions):
        encoder = ImageBackbone(
            SHAPE, "resnet18", 8, weights=weights, tune=True, learning_rate=1e-5, regions=regions, pooling="none"
        ).train()
        found = encoder(torch.rand(6, *SHAPE))
        (found.vectors if regions else found).square().sum().backward()
        assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in encoder.backbone.parameters())
        groups = parameter_groups(encoder)
        own = [one for group in groups if group.get("lr") == 1e-5 for one in group["params"]]
        assert {id(one) for one in own} == {id(one) for one in encoder.backbone.parameters()}
        assert sum(len(group["params"]) for group in groups if "lr" not in group) == 2
        same_rate = ImageBackbone(SHAPE, "resnet18", 8, weights=weights, tune=True)
        assert not any("lr" in group for group in parameter_groups(same_rate))

    def test_the_head_starts_as_on_extracted_features(self, weights):
        torch.manual_seed(5)
        encoder = ImageBackbone(SHAPE, "resnet18", 8, weights=weights)
        after = torch.rand(3)
        torch.manual_seed(5)
        alone = ImageFeatures((512,), 8)
        assert torch.equal(torch.rand(3), after)
        assert torch.equal(alone.linear.weight, encoder.head.linear.weight)
        images = pictures(4, *SHAPE)
        assert torch.equal(alone(encoder.features(images)), encoder(images))

    @pytest.mark.parametrize(("pooling", "kind"), [("none", Sets), ("mean", torch.Tensor)])
    def test_regions(self, weights, pooling, kind):
        encoder = ImageBackbone(SHAPE, "resnet18", 8, weights=weights, regions=2, pooling=pooling)
        found = encoder(pictures(3, *SHAPE))
        assert isinstance(found, kind)
        assert encoder.gives == ("sets" if kind is Sets else "vectors")
        assert (found.vectors.shape if kind is Sets else found.shape) == ((12, 8) if kind is Sets else (3, 8))

    def test_a_checkpoint_rebuilds_it(self, weights):
        encoder = ImageBackbone(SHAPE, "resnet18", 8, weights=weights).eval()
        settings = {"model": "resnet18", "dim": 8, "weights": "gone.pth", "pretrained": True}
        again = ImageBackbone(SHAPE, **(settings | ImageBackbone.rebuilt)).eval()
        again.load_state_dict(encoder.state_dict())
        images = pictures(2, *SHAPE)
        assert torch.equal(again(images), encoder(images))

    def test_mixed_precision(self, weights):
        encoder, images = ImageBackbone(SHAPE, "resnet18", 8, weights=weights), pictures(2, *SHAPE)
        with torch.autocast("cpu", torch.bfloat16):
            found = encoder(images)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), encoder(images), rtol=0.05, atol=0.02)


class TestWeights:
    @pytest.mark.parametrize("form", ["bare", "without head", "nested", "parallel", "old", "safetensors"])
    def test_forms(self, resnet, weights, tmp_path, form):
        state = resnet.state_dict()
        bare = {key: value for key, value in state.items() if not key.startswith("fc.")}
        path = tmp_path / ("file.safetensors" if form == "safetensors" else "file.pth")
        forms = {
            "without head": bare,
            "nested": {"state_dict": state, "epoch": 3},
            "parallel": {f"module.{key}": value for key, value in state.items()},
            "old": {key: value for key, value in state.items() if not key.endswith("num_batches_tracked")},
        }
        save_file(state, path) if form == "safetensors" else torch.save(forms.get(form, state), path)
        images = pictures(2, *SHAPE)
        found, expected = (Backbone(SHAPE, "torchvision", "resnet18", weights=file) for file in (str(path), weights))
        assert torch.equal(found(images), expected(images))
        assert found.weights_hash() == expected.weights_hash()
        with torch.no_grad():
            next(found.parameters())[0, 0, 0, 0] += 1e-6
        assert found.weights_hash() != expected.weights_hash()

    def test_of_another_model(self, resnet, weights, tmp_path):
        with pytest.raises(
            InputError, match=r"not of resnet34: \d+ of \d+ entries are missing, first layer1\.2\.conv1\.weight \(64, "
        ):
            Backbone(SHAPE, "torchvision", "resnet34", weights=weights)
        with pytest.raises(InputError, match=r"entries are not squeezenet1_1's, first conv1\.weight \(64, 3, 7, 7\)"):
            Backbone(SHAPE, "torchvision", "squeezenet1_1", weights=weights)
        wide = resnet.state_dict() | {"layer4.1.conv2.weight": torch.zeros(512, 4, 3, 3)}
        torch.save(wide, tmp_path / "wide.pth")
        with pytest.raises(
            InputError, match=r"1 entries have other shapes, first layer4\.1\.conv2\.weight \(512, 4, 3, 3\), expected"
        ):
            Backbone(SHAPE, "torchvision", "resnet18", weights=str(tmp_path / "wide.pth"))

    @pytest.mark.parametrize("suffix", ["pth", "safetensors"])
    def test_that_cannot_be_read(self, weights, tmp_path, suffix):
        path = tmp_path / f"half.{suffix}"
        with open(weights, "rb") as whole:
            path.write_bytes(whole.read(100_000))
        with pytest.raises(InputError, match=rf"half\.{suffix} cannot be read"):
            Backbone(SHAPE, "torchvision", "resnet18", weights=str(path))
        with pytest.raises(InputError, match="no such file"):
            Backbone(SHAPE, "torchvision", "resnet18", weights=str(tmp_path / "absent.pth"))
        torch.save({"epoch": 3}, tmp_path / "other.pth")
        with pytest.raises(InputError, match="holds no state dict"):
            Backbone(SHAPE, "torchvision", "resnet18", weights=str(tmp_path / "other.pth"))

    def test_that_cannot_be_downloaded(self, monkeypatch, tmp_path):
        monkeypatch.setenv("TORCH_HOME", str(tmp_path))
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
        with pytest.raises(InputError, match=r"resnet18 are not available \(URLError.*weights=FILE.*pretrained=false"):
            Backbone(SHAPE, "torchvision", "resnet18")


@looped(
    ("change", "message"),
    [
        ({"model": "resnet19"}, "torchvision has no model 'resnet19' of its .* close to it: resnet1"),
        ({"model": "resnet10", "library": "timm"}, "timm has no model 'resnet10' of its .* close to it: .*resnet10t"),
        ({"model": "resnet18.V3"}, "the weights of resnet18 is 'V3'; choose one of 'IMAGENET1K_V1'"),
        ({"library": "keras"}, "library is 'keras'; choose one of 'torchvision', 'timm'"),
        ({"image_shape": (2048,)}, r"takes pictures \(3, height, width\), or crops .* have shape \(2048,\)"),
        ({"model": "vit_b_32"}, r"vit_b_32 cannot take pictures of 64 x 64 .*; it was made for 224 x 224"),
        ({"model": "alexnet", "image_shape": (3, 16, 16)}, "alexnet cannot take pictures of 16 x 16"),
        ({"learning_rate": 1e-4}, "learning_rate is the backbone's, which is frozen"),
        ({"tune": True, "learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"pooling": "mean"}, "pooling=mean is of regions"),
        ({"regions": 0}, "regions is 0"),
    ],
)
def test_what_is_refused(change, message):
    settings = {"image_shape": SHAPE, "model": "resnet18", "dim": 8, "pretrained": False}
    with pytest.raises(InputError, match=message):
        ImageBackbone(**settings | change)


def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch, tmp_path):
    """Its client would wait between many attempts; the message then says what to do."""
    from huggingface_hub import constants

    asked = []

    def nowhere(host, *_, **__):
        asked.append(host)
        raise OSError("Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", nowhere)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waits"))
    with pytest.raises(
        InputError, match=r"the weights of resnet18 are not available .*Give image_encoder.weights=FILE"
    ):
        vision_model("timm", "resnet18", True)
    assert len(asked) <= 1
    assert constants.HF_HUB_OFFLINE is False
