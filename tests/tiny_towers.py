"""Tiny joint models in folders, as open_clip and transformers write them, with random weights."""

import json
from pathlib import Path

import torch

PLAIN = ["a", "the", "big", "small", "red", "green", "blue", "box", "circle", "on", "in", "and", "of", "with", "two"]
WORDS = ["<pad>", "<unk>", "<s>", *PLAIN, "</s>"]
MOST = 12  # tokens of a text
SIDE = 32  # pixels
WEIGHTS = "open_clip_model.safetensors"
CLIP_SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def tiny_open_clip(folder: Path, seed: int = 0, embed_dim: int = 8, **preprocessing) -> str:
    """The folder with open_clip_config.json and its weights; the tokenizer is CLIP's, which open_clip brings."""
    import open_clip
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    vision = {"image_size": SIDE, "layers": 2, "width": 16, "head_width": 8, "patch_size": 16}
    text = {"context_length": MOST, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2}
    config = {"model_cfg": {"embed_dim": embed_dim, "vision_cfg": vision, "text_cfg": text}}
    config["preprocess_cfg"] = {"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4], **preprocessing}
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = open_clip.create_model(f"local-dir:{folder}", load_weights=False)
    save_file({name: tensor.contiguous().clone() for name, tensor in model.state_dict().items()}, folder / WEIGHTS)
    return str(folder)


def tiny_hf(folder: Path, kind: str = "clip", seed: int = 0) -> str:
    """The folder of a "clip", "siglip" or "chinese_clip" model of transformers with its tokenizer and preprocessing."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    names = {"clip": "CLIP", "siglip": "Siglip", "chinese_clip": "ChineseCLIP"}
    text = {"vocab_size": len(WORDS), "max_position_embeddings": MOST, **CLIP_SIZES}
    text |= {"bos_token_id": 2, "eos_token_id": len(WORDS) - 1, "pad_token_id": 0}
    vision = {"image_size": SIDE, "patch_size": 16, **CLIP_SIZES}
    projection = {} if kind == "siglip" else {"projection_dim": 8}
    config = getattr(transformers, f"{names[kind]}Config")(text_config=text, vision_config=vision, **projection)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        getattr(transformers, f"{names[kind]}Model")(config).save_pretrained(folder)
    processing = {"size": {"height": SIDE, "width": SIDE}}
    if kind != "siglip":
        processing["crop_size"] = processing["size"]
    if kind == "clip":
        processing["size"] = {"shortest_edge": SIDE}
    getattr(transformers, f"{names[kind]}ImageProcessor")(**processing).save_pretrained(folder)
    _tokenizer().save_pretrained(folder)
    return str(folder)


def _tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    numbers = {word: number for number, word in enumerate(WORDS)}
    ends = [(name, numbers[name]) for name in ("<s>", "</s>")]
    tokenizer = Tokenizer(WordLevel(numbers, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=MOST, **names)
