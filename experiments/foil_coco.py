"""FOIL-COCO's json as the table that `vsehub evaluate foil=FILE` reads.

    python -m experiments foil_coco foilv1.0_test_2017.json OUT.csv [--names test_ids.txt]

Annotations that share an id are one caption and its foils; an image is named by the json's own file name, as in COCO's
folders. --names: a text file of image names, one a line; pairs of other images are left out, since the split that is
evaluated, Karpathy's for example, need not hold all images of FOIL-COCO.
"""

import csv
import io
import json
from collections import defaultdict
from pathlib import Path

from experiments.study import Given, option, verb
from vsehub.checks import InputError, existing
from vsehub.io.files import write_text
from vsehub.io.text import read_lines


def pairs(path: Path) -> list[tuple[str, str, str]]:
    """(image, caption, foil) of all foils. InputError where the json is damaged or a foil has no caption."""
    try:
        content = json.loads(existing("json", path, "Give foilv1.0_test_2017.json").read_text())
        files = {image["id"]: image["file_name"] for image in content["images"]}
        true, false = {}, defaultdict(list)
        for one in content["annotations"]:
            entry = files[one["image_id"]], " ".join(one["caption"].split())
            if one["foil"]:
                false[one["id"]].append(entry)
            else:
                true[one["id"]] = entry
        return [(image, true[name][1], foil) for name, foils in false.items() for image, foil in foils]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no json of FOIL-COCO ({type(error).__name__}: {error})") from error


@verb(
    option("json", type=Path),
    option("out", type=Path, metavar="OUT.csv"),
    option("--names", type=Path, help="a text file of the images to keep, one name a line"),
)
def main(options: Given) -> None:
    """Write the file."""
    found = pairs(options.json)
    names = None if options.names is None else set(read_lines(options.names, "file name"))
    kept = [pair for pair in found if names is None or pair[0] in names]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([("image", "caption", "foil"), *kept])
    write_text(options.out, text.getvalue())
    print(f"{len(kept)} of {len(found)} pairs in {options.out}")
