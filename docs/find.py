"""python find.py EXPORT PICTURES "a text": the pictures of a folder for a text, best first.

EXPORT: the folder that `vsehub export` wrote. Models of subwords also need tokenizers, and those of open_clip ftfy and
regex.
"""

import html
import json
import re
import string
import sys
import unicodedata
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

folder, pictures, text = Path(sys.argv[1]), sorted(Path(sys.argv[2]).glob("*.*")), sys.argv[3]
export = json.loads((folder / "export.json").read_text(encoding="utf-8"))
if (export["format"], export["version"]) != ("vsehub export", 1):
    sys.exit(
        f"{folder}: version {export['version']} of {export['format']}, this script reads 1; export the checkpoint again"
    )
if export["similarity"]["name"] != "Cosine":
    sys.exit(f"{folder}: the similarity is {export['similarity']['name']}: {export['similarity']['how']}")
how = json.loads((folder / export["image"]["preprocessing"]).read_text(encoding="utf-8"))
tokens = export["text"]["tokens"]


def pixels(path):
    """The input of the image encoder for a picture: (3, size, size)."""
    picture = ImageOps.exif_transpose(Image.open(path))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    picture, size = picture.convert("RGB"), how["size"]
    if how["mode"] == "squash":
        wanted = (how["resize"], how["resize"])
    elif how["mode"] == "longest":
        wanted = tuple(max(1, round(how["resize"] * side / max(picture.size))) for side in picture.size)
    else:
        wanted = tuple(how["resize"] * side // min(picture.size) for side in picture.size)
    picture = picture.resize(wanted, Image.Resampling[how["interpolation"].upper()])
    whole = Image.new("RGB", tuple(max(size, side) for side in wanted), (how["fill"],) * 3)
    whole.paste(picture, tuple((full - side) // 2 for full, side in zip(whole.size, wanted, strict=True)))
    left, top = (round((side - size) / 2) for side in whole.size)
    return np.asarray(whole.crop((left, top, left + size, top + size))).transpose(2, 0, 1)


def numbers(text):
    """The numbers of a text's words or subwords."""
    content = (folder / tokens["file"]).read_text(encoding="utf-8")
    if tokens["kind"] == "words":
        known = json.loads(content)
        text = unicodedata.normalize("NFC", text.lower()).replace("’", "'").replace("_", " ")
        number = {word: row for row, word in enumerate(known["words"])}
        words = re.findall(known["pattern"], text)[: tokens["max_words"]]
        return [number["<start>"], *(number.get(word, number["<unk>"]) for word in words), number["<end>"]]
    from tokenizers import Tokenizer

    if tokens["clean"]:
        import ftfy

        text = html.unescape(html.unescape(ftfy.fix_text(text)))
        if tokens["clean"] == "canonicalize":
            text = text.replace("_", " ").translate(str.maketrans("", "", string.punctuation))
        text = " ".join(text.split())
        text = text if tokens["clean"] == "whitespace" else text.lower()
    if tokens["split"]:
        import regex

        text = " ".join(regex.findall(tokens["split"], text, regex.IGNORECASE))
    tokenizer = Tokenizer.from_str(content)
    most = [tokens["max_tokens"], tokens["max_words"] and tokens["max_words"] + tokens["special_tokens"]]
    if any(most):
        tokenizer.enable_truncation(min(limit for limit in most if limit))
    return tokenizer.encode(text).ids


def unit(side, *inputs):
    """Vectors of one side, divided by their norms."""
    session = onnxruntime.InferenceSession(folder / export[side]["file"])
    vectors = session.run(None, dict(zip(export[side]["inputs"], inputs, strict=True)))[0]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


ids = numbers(text)
query = unit("text", np.array([ids]), np.array([len(ids)]))
scores = (query @ unit("image", np.stack([pixels(path) for path in pictures])).T)[0]
for row in np.argsort(-scores)[:10]:
    print(f"{scores[row]:.4f} {pictures[row].name}")
