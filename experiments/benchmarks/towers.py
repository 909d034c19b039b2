"""The forward pass of joint models as vsehub's encoders against the bare models of open_clip and transformers.

Both have the size of CLIP ViT-B/32 and random weights. The bare model gets normalised pixels and padded tokens; the
encoder gets pixels of eight bits and tokens as the data loader gives them.

    python -m experiments.benchmarks.towers [--batch 16] [--rounds 15] [--model ViT-B-32]
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from experiments.benchmarks import common
from vsehub.data.text.vocabulary import restored
from vsehub.encoders import ImageTower, TextTower

CAPTION = "a man in a red jacket rides a bicycle past two dogs on a beach"
LIMIT = 1.1


def hf_folder(folder: Path) -> str:
    """A folder with CLIP's configuration, preprocessing and CLIP's tokens, without weights."""
    from tokenizers import Tokenizer
    from transformers import CLIPConfig, CLIPImageProcessor, PreTrainedTokenizerFast

    words = TextTower.subwords_of({"library": "open_clip", "model": "ViT-B-32"})
    assert words is not None
    CLIPConfig().save_pretrained(folder)
    CLIPImageProcessor().save_pretrained(folder)
    names = {"pad_token": "<end_of_text>", "eos_token": "<end_of_text>", "model_max_length": 77}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(words["subwords"]), **names).save_pretrained(folder)
    return str(folder)


def ways(library: str, model: str, batch: int, device: torch.device) -> dict[str, dict[str, Callable[[], object]]]:
    """Side -> {"bare": ..., "vsehub": ...}: calls that encode the same batch."""
    settings = {"library": library, "model": model, "pretrained": False}
    images, texts = (made(**settings).to(device).eval() for made in (ImageTower, TextTower))
    words = restored(TextTower.subwords_of(settings))
    ids = torch.tensor([words.encode(CAPTION)] * batch, device=device)
    lengths = torch.full((batch,), ids.shape[1], device=device)
    size = images.preparation.size
    pixels = torch.randint(256, (batch, 3, size, size), dtype=torch.uint8, device=device)
    normalised = (pixels / 255 - images.mean) / images.std
    if library == "open_clip":
        padded = texts.network.padded(ids, lengths)[0]
        bare = {
            "images": lambda: images.network.model(normalised),
            "texts": lambda: texts.network.model.encode_text(padded),
        }
    else:
        own, mask = (images.network.model, texts.network.model), torch.ones_like(ids)
        bare = {
            "images": lambda: own[0].get_image_features(pixel_values=normalised),
            "texts": lambda: own[1].get_text_features(input_ids=ids, attention_mask=mask),
        }
    ours = {"images": lambda: images(pixels), "texts": lambda: texts(ids, lengths)}
    return {side: {"bare": bare[side], "vsehub": ours[side]} for side in bare}


@torch.inference_mode()
def measured(library: str, model: str, options: argparse.Namespace, device: torch.device) -> list[dict]:
    """Times of both sides of a library's model."""
    found = []
    for side, calls in ways(library, model, options.batch, device).items():
        found.append({"library": library, "side": side} | compared(calls, options.batch, options.rounds, device))
    return found


def compared(calls: dict[str, Callable], rows: int, rounds: int, device: torch.device) -> dict:
    """Times of both ways for so many rows, and the median ratio of a round."""
    seconds = common.interleave(calls, rounds, device, warmup=2)
    ratios = sorted(ours / bare for ours, bare in zip(seconds["vsehub"], seconds["bare"], strict=True))
    times = {name: common.summary(one) for name, one in seconds.items()}
    return {"rows": rows, "ratio": ratios[len(ratios) // 2], **times}


def text(entries: list[dict]) -> str:
    """The table."""
    rows = [
        [
            one["library"],
            f"{one['rows']} {one['side']}",
            common.shown(one["bare"]),
            common.shown(one["vsehub"]),
            f"{one['rows'] / one['vsehub']['median']:.1f}",
            f"{one['ratio']:.3f}, {common.target(one['ratio'], LIMIT)}",
        ]
        for one in entries
    ]
    columns = ["library", "what", "bare (least to most)", "vsehub", "a second", "median ratio of a round"]
    return common.table(columns, rows)


def main(argv: list[str] | None = None) -> None:
    """Read the command line, measure, report."""
    parser = common.arguments(__doc__)
    parser.add_argument("--batch", type=int, default=16, help="pictures or texts at a time (default: 16)")
    parser.add_argument("--model", default="ViT-B-32", help="a name of open_clip (default: ViT-B-32)")
    options = parser.parse_args(argv)
    device = common.device_of(options.device)
    with tempfile.TemporaryDirectory() as folder:
        models = {"open_clip": options.model, "hf": hf_folder(Path(folder))}
        entries = [one for library, model in models.items() for one in measured(library, model, options, device)]
    title = "Joint models as encoders"
    common.report("towers", title, {"entries": entries}, text(entries), device, options.out)


if __name__ == "__main__":
    main()
