"""The folder that `vsehub rerank` writes, read again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from vsehub.checks import existing, require
from vsehub.criteria.choose import named_criterion
from vsehub.io.arrays import readable
from vsehub.io.records import BIASES, EMBEDDINGS, RESULT, read_record
from vsehub.ranking.inputs import Inputs, open_inputs
from vsehub.ranking.record import settings_without_file

HINT = "Give the folder that vsehub rerank wrote"
QUERIES = ("queries", "query_ids", "query_labels", "truth")
TUNING = ("tune_queries", "tune_truth")


class Result:
    """A result of `vsehub rerank`, of a criterion that ranks by a·s - b(item). folder: where it lies.

    record: its result.json. criterion: the last ranking's. inputs: the files that it was made from, opened again. bias:
    b (M,), float64. changes: setting -> file, for files that have moved or whose address was not recorded, since it
    holds a secret; None: as recorded. new_queries: True if `changes` names other queries; the recorded ids, labels and
    truth are then not used. Raises InputError for another criterion, and if a file is absent or not the one that was
    ranked.
    """

    def __init__(self, folder: str, changes: Mapping[str, Any], new_queries: bool = False):
        self.folder = Path(folder)
        self.file = existing("result", self.folder / RESULT, HINT)
        self.record = read_record(self.file, EMBEDDINGS, HINT)
        require(
            "scores" not in self.record["inputs"], f"result: {self.folder} is of scores; give rerank vectors instead"
        )
        ranking, biases = self.record["rankings"][-1], self.folder / BIASES
        self.name = str(ranking["criterion"])
        require(
            biases.exists(),
            f"result: {self.folder} has no {BIASES}: {self.name} does not rank by the score minus a term of the item. "
            "Give a result of another criterion, e.g. csls; criterion=auto criterion.indexable=true chooses such ones",
        )
        self.criterion: Any = named_criterion(self.name, ranking["parameters"])
        changed = {name: str(file) for name, file in changes.items() if file is not None}
        unused = {*TUNING, *QUERIES, *changed} if new_queries else {*TUNING, *changed}
        files = {
            name: file for name, file in self.record["inputs"].items() if name not in unused and isinstance(file, str)
        }
        require(
            not settings_without_file(files),
            f"result: {self.file} names {' '.join(settings_without_file(files))}: not there, or an address, which is "
            "not opened for a record. Give the setting again, with the current path, or put the file back",
        )
        self.inputs: Inputs = open_inputs(files | changed, self.record["inputs"]["normalize"])
        others = [
            str(file)
            for side, file in self.inputs.files.items()
            if not (side == "queries" and new_queries)
            and file.fingerprint() != (self.record[side] or {}).get("fingerprint")
        ]
        require(not others, f"result: not the vectors that were ranked: {', '.join(others)}. Give vsehub rerank again")
        names = self.inputs.item_names
        self.items_path = str(self.record["items"]["path"])
        self.reference_text = str(self.record["reference"]["set"])
        with readable(biases, pa.ArrowException, KeyError):
            table = pq.read_table(biases)
            rows = pc.index_in(pa.array(names.ids or range(names.rows)), table["id"])
            require(
                len(table) == names.rows and not rows.null_count,
                f"result: {biases} has not one bias for each of {names.rows} items. Give vsehub rerank again",
            )
            self.bias: Tensor = torch.from_numpy(table["bias"].take(rows).to_numpy().copy())

    @property
    def rates(self) -> dict[float, dict[str, Any]]:
        """False-accept rate -> what `vsehub calibrate` recorded of it: "threshold", "accepted" and "interval"."""
        rates = (self.record["calibration"] or {"rates": []})["rates"]
        return {values["false_accept"]: values for values in rates}
