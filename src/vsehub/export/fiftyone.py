"""Items as a data set of FiftyOne."""

import json
import logging
import os
import shlex
from pathlib import Path
from typing import Any

from vsehub.export.items import ItemsFormat, MeasuredItems
from vsehub.io.files import atomic, write_json

log = logging.getLogger(__name__)

SAMPLES, METADATA = "samples.json", "metadata.json"


class FiftyOne(ItemsFormat):
    """A folder in FiftyOne's layout `FiftyOneDataset`: a sample for each item with a picture, with its hubness.

    The samples are those of `Sample.to_dict`. The metadata name no version: FiftyOne then reads the fields of each
    sample by their values, in any version since 0.8, instead of taking over documents of its database.
    """

    files = (SAMPLES, METADATA)
    needs_images = True

    def write(self, items: MeasuredItems, folder: Path) -> None:
        """See `ItemsFormat`. Logs a warning if items are left out because they have no picture."""
        columns = {name: one.tolist() for name, one in items.columns.items()}
        written = 0
        with atomic(folder / SAMPLES) as handle:
            handle.write(b'{"samples": [')
            for row in range(len(items)):
                image = items.names.image(row)
                if image is None:
                    continue
                sample = {"filepath": os.path.abspath(image), **self._fields(items, row)}
                sample |= {name: one[row] for name, one in columns.items()}
                handle.write((",\n" if written else "\n").encode() + json.dumps(sample, ensure_ascii=False).encode())
                written += 1
            handle.write(b"\n]}\n")
        if written < len(items):
            log.warning("%d of the %d items have no picture and were left out", len(items) - written, len(items))
        info = {"k": items.k, "criterion": items.criterion, "items": len(items), "written_by": "vsehub export"}
        write_json(folder / METADATA, {"media_type": "image", "info": info})

    def _fields(self, items: MeasuredItems, row: int) -> dict[str, Any]:
        """The fields that say which item it is."""
        named = {"item_id": items.names.ids, "item_label": items.names.labels}
        hub = ["hub"] if bool(items.before.hub[row]) else []
        given = {name: one[row] for name, one in named.items() if one is not None}
        return {"tags": hub, "metadata": None, "_media_type": "image", "row": row, **given}

    def opened_by(self, items: MeasuredItems, folder: Path) -> str:
        """See `ItemsFormat`."""
        return f"fiftyone app view --dataset-dir {shlex.quote(str(folder))} --type fiftyone.types.FiftyOneDataset"
