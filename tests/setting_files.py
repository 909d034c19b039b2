"""The files that settings.yaml names, each made when a setting first asks for it."""

import csv
import json
import shutil

import numpy as np
import photo_files

WORDS = ("red", "blue", "green", "small", "large", "round", "square")
COUNTS = {"train": 12, "dev": 8, "test": 16}
SHIFTED = {"train": "train", "val": "test", "test": "val"}  # another division of the same pictures


class Files:
    """Files below a folder. "@NAME/REST" in a setting is the path REST in what the method NAME writes.

    made: NAME -> a command and its settings, which write the files instead. command: a function that runs a command
    with settings in a folder.
    """

    def __init__(self, root, made=None, command=None):
        self.root, self.made, self.command, self._folders = root, made or {}, command, {}

    def placed(self, value, here):
        """A setting with paths in place of names. "@here" is the folder of the run; "@here/NAME" is a copy there."""
        if isinstance(value, list):
            return [self.placed(entry, here) for entry in value]
        if isinstance(value, dict):
            return {key: self.placed(entry, here) for key, entry in value.items()}
        if not (isinstance(value, str) and value.startswith("@")):
            return value
        name, _, rest = value[1:].partition("/")
        if name != "here":
            return str(self._written(name) / rest)
        name = rest.partition("/")[0]
        if name in self.made or hasattr(self, name):
            shutil.copytree(self._written(name), here / name, dirs_exist_ok=True)
        return str(here / rest)

    def _written(self, name):
        if name not in self._folders:
            self._folders[name] = self.root / name
            self._folders[name].mkdir()
            if name in self.made:
                self.command(*self.made[name], self._folders[name])
            else:
                getattr(self, name)(self._folders[name])
        return self._folders[name]

    def captions(self, folder, shape=(6,)):
        """Features of images and two captions each, in the layout of data=precomp; noise.npy: images of captions."""
        random = np.random.default_rng(0)
        for prefix, count in COUNTS.items():
            np.save(folder / f"{prefix}_ims.npy", random.normal(size=(count, *shape)).astype(np.float32))
            captions = [" ".join(random.choice(WORDS, 3 + row % 3)) for row in range(2 * count)]
            (folder / f"{prefix}_caps.txt").write_text("\n".join(captions) + "\n")
        np.save(folder / "noise.npy", np.roll(np.arange(24) // 2, 5))

    def others(self, folder):
        """As `captions`, of other images."""
        self.captions(folder)
        for path in folder.glob("*_ims.npy"):
            np.save(path, -np.load(path))

    def regions(self, folder):
        """As `captions`, with four regions an image."""
        self.captions(folder, (4, 6))

    def vectors(self, folder):
        """Vectors of two modalities, a table for each split, and one of all pairs."""
        random = np.random.default_rng(1)
        for name, size in (("images", 6), ("texts", 5), ("images2", 6), ("texts2", 5)):
            np.save(folder / f"{name}.npy", random.normal(size=(40, size)).astype(np.float32))
        spans = {"train": range(16), "val": range(16, 24), "test": range(24, 40), "all": range(40)}
        spans |= {"few": range(12), "val2": range(16, 20), "test2": range(24, 32)}
        for name, span in spans.items():
            lines = [f"{row},{row - row % 2}" for row in span]
            (folder / f"{name}.csv").write_text("\n".join(["query,item", *lines]) + "\n")

    def arrays(self, folder):
        """As `write_vectors`; other true pairs, the scores of queries and of others, and pictures of items."""
        from own_vectors import vectors, write_vectors

        write_vectors(folder)
        queries, items, reference, wanted = vectors()
        for name, array in (("m2", items[::-1]), ("q2", queries[:, ::-1]), ("few", queries[:5])):
            np.save(folder / f"{name}.npy", array)
        (folder / "rows.txt").write_text("\n".join(map(str, range(len(queries))[::-1])))
        np.save(folder / "scores.npy", queries @ items.T)
        np.save(folder / "scores2.npy", reference @ items.T)
        lines = [f"{row},{item}" for row, item in enumerate(np.roll(wanted, 1))]
        (folder / "rows2.csv").write_text("\n".join(["query,item", *lines]))
        for row in range(len(items)):
            (folder / "photos" / f"{row}.png").write_bytes(photo_files.picture(row))

    def photos(self, folder):
        """Pictures with captions as every source of photos reads them, each with a second choice of everything."""
        made = self._photos()
        inverted = [photo._replace(content=photo_files.picture(60 + number)) for number, photo in enumerate(made)]
        photo_files.write_folder(folder / "again", inverted)
        photo_files.write_karpathy(folder, made)
        (folder / "other.json").write_text((folder / "splits.json").read_text().replace("caption", "word"))
        head = ("image", "picture", "caption", "text", "split", "part")
        rows = [
            (photo.name, made[number - 1].name, text, f"other {text}", photo.split, SHIFTED[photo.split])
            for number, photo in enumerate(made)
            for text in photo.captions
        ]
        (folder / "photos" / "broken.png").write_bytes(made[0].content[:60])
        entry = {"filename": "broken.png", "split": "train", "sentences": [{"raw": "a"}]}
        images = json.loads((folder / "splits.json").read_text())["images"]
        (folder / "broken.json").write_text(json.dumps({"images": [*images, entry]}))
        broken = ("broken.png", "broken.png", "a", "b", "train", "train")
        for name, lines in (("table", rows), ("other", rows[::-1][:40]), ("broken", [*rows, broken])):
            with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([head, *lines])

    @staticmethod
    def _photos():
        """Pictures, none of which have a caption in common."""
        made = photo_files.photos(24)
        return [photo._replace(captions=[f"{text} {photo.name}" for text in photo.captions]) for photo in made]

    def saved(self, folder):
        """Datasets of Hugging Face with a column of splits; broken: one picture is cut short."""
        import datasets

        made = self._photos()
        for name, pictures in (("one", made), ("two", made[:20]), ("broken", made)):
            rows = photo_files.dataset_of(pictures).to_dict()
            if name == "broken":
                rows["image"][0]["bytes"] = rows["image"][0]["bytes"][:60]
            rows |= {"picture": rows["image"][::-1], "text": [[f"other {n}"] for n in range(len(pictures))]}
            rows |= {"split": [photo.split for photo in pictures], "part": [SHIFTED[photo.split] for photo in pictures]}
            features = datasets.Dataset.from_dict(rows).features
            features |= {"image": datasets.Image(), "picture": datasets.Image()}
            datasets.Dataset.from_dict(rows, features=datasets.Features(features)).save_to_disk(folder / name)

    def weights(self, folder):
        """Random weights of a small network of torchvision and of timm, twice."""
        import timm
        import torch
        import torchvision

        with torch.random.fork_rng():
            for seed in (0, 1):
                torch.manual_seed(seed)
                torch.save(torchvision.models.mobilenet_v3_small().state_dict(), folder / f"torchvision{seed}.pth")
                torch.save(timm.create_model("test_resnet").state_dict(), folder / f"timm{seed}.pth")

    def bert(self, folder, seed=0):
        """A text model with its tokenizer."""
        from tiny_bert import tiny_bert

        tiny_bert(folder, seed)

    def bert2(self, folder):
        """The same with other weights."""
        self.bert(folder, seed=1)

    def clip(self, folder, seed=0):
        """A joint model."""
        from tiny_towers import tiny_hf

        tiny_hf(folder, seed=seed)

    def clip2(self, folder):
        """The same with other weights."""
        self.clip(folder, seed=1)
