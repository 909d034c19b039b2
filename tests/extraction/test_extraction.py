"""Extraction in pieces: each is somebody's, found once, whole or absent, and put together as the layout says."""

import hashlib
import io
import threading
import time
import zipfile

import numpy as np
import pytest
import torch
from looped import looped

from vsehub.checks import InputError
from vsehub.data import CaptionedImages, Precomp
from vsehub.extraction.chunks import ChunkFiles, Processes, chunks_of
from vsehub.extraction.features import extract
from vsehub.extraction.folder import (
    MANIFEST,
    PARTS,
    assemble,
    captions_each,
    file_names,
    finished,
    kept_captions,
    require_room,
    verify,
)
from vsehub.io.files import write_json

SETTINGS = {"model": "x", "regions": None, "data": {"train": "abc"}}


def split(counts, seed=0, names=True):
    """Images of 3 x 2 x 2 pixels with `counts` captions, which stand in any order; one of them has a line break."""
    rng = np.random.default_rng(seed)
    index = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    seen, captions = [0] * len(counts), []
    for image in index:
        captions.append(f"caption {seen[image]} of\n image {image}")
        seen[image] += 1
    images = rng.integers(1, 256, (len(counts), 3, 2, 2), dtype=np.uint8)
    return CaptionedImages(images, captions, index, [f"{n}.jpg" for n in range(len(counts))] if names else None)


def pixels(images):
    """Features (n, 4, 3) that tell any two pictures apart."""
    return images.float().flatten(2).transpose(1, 2)


def run(splits, chunks, files, function=pixels, dtype=torch.float32, batch_size=3):
    return extract(function, splits, chunks, files, batch_size=batch_size, dtype=dtype, device=torch.device("cpu"))


@looped("counts", [{"train": 1}, {"train": 7, "val": 5}, {"train": 20, "val": 1, "test": 10}])
@looped(("size", "world"), [(1, 1), (4, 3), (5, 2), (100, 4)])
def test_every_image_is_one_chunks_and_every_chunk_one_processs(counts, size, world):
    chunks = chunks_of(counts, size)
    images = [(one.split, row) for one in chunks for row in range(one.start, one.stop)]
    assert images == [(name, row) for name, count in counts.items() for row in range(count)]
    assert max(one.stop - one.start for one in chunks) <= size
    shared = [one for rank in range(world) for one in Processes(rank, world).own(chunks)]
    assert sorted(shared) == sorted(chunks)
    assert len({one.name for one in chunks}) == len(chunks)


@pytest.mark.parametrize(
    "environment",
    [{"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "0"}, {"RANK": "a", "WORLD_SIZE": "2"}, {"WORLD_SIZE": "4"}],
)
def test_processes_that_cannot_be(environment):
    with pytest.raises(InputError, match="as torchrun sets them"):
        Processes.of(environment)


def test_processes():
    assert Processes.of({}) == (0, 1, 0)
    assert Processes.of({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}) == (5, 8, 1)


class TestFeatures:
    def test_nothing_is_rounded_to_tf32(self, tmp_path):
        cudnn, noted = torch.backends.cudnn, []

        def noting(images):
            noted.append((cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision))
            return pixels(images)

        before = cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision
        run({"train": split([2] * 4)}, chunks_of({"train": 4}, 4), ChunkFiles(tmp_path / PARTS, SETTINGS), noting)
        assert set(noted) == {("ieee", "ieee")}
        assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == before != ("ieee", "ieee")

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    def test_in_pieces_as_at_once(self, tmp_path, dtype):
        splits = {"train": split([2] * 11), "val": split([2] * 2, seed=1)}
        chunks, files = chunks_of({"train": 11, "val": 2}, 4), ChunkFiles(tmp_path / PARTS, SETTINGS)
        assert run(splits, chunks[1:3], files, dtype=dtype) == 7
        assert run(splits, chunks, files, dtype=dtype) == 6, "what is there is not found again"
        assemble(tmp_path, splits, chunks, files, 2)
        for name, prefix in (("train", "train"), ("val", "dev")):
            stored = np.load(tmp_path / f"{prefix}_ims.npy")
            expected = pixels(torch.from_numpy(splits[name].images)).to(dtype).numpy()
            assert stored.dtype == expected.dtype
            assert np.array_equal(stored, expected)

    def test_the_next_are_read_while_one_is_computed(self, tmp_path):
        read, late = threading.Semaphore(0), []

        class Reader:
            shape, dtype = (24, 3, 2, 2), np.dtype(np.uint8)

            def __len__(self):
                return 24

            def __getitem__(self, index):
                read.release()
                return np.full((index.stop - index.start, 3, 2, 2), 1 + index.start, np.uint8)

        def network(images):
            """Counts the reads of its own batch and of the next: the second must come while it is at work."""
            first = int(images[0, 0, 0, 0]) == 1
            if not all(read.acquire(timeout=20) for _ in range(2 if first else 1)) and int(images[0, 0, 0, 0]) < 23:
                late.append(int(images[0, 0, 0, 0]))
            if int(images[0, 0, 0, 0]) == 21:
                read.release()  # the last has no next
            return pixels(images)

        splits = {"train": CaptionedImages(Reader(), ["a"] * 24, np.arange(24))}
        files, chunks = ChunkFiles(tmp_path, SETTINGS), chunks_of({"train": 24}, 6)
        run(splits, chunks, files, network, batch_size=2)
        assert late == []
        assert files.read(chunks[1])[:, 0, 0].tolist() == [7, 7, 9, 9, 11, 11]

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, 70_000.0])
    @pytest.mark.parametrize("names", [True, False])
    def test_unusable_features_name_their_images(self, tmp_path, value, names):
        splits = {"train": split([1] * 9, names=names)}

        def spoiled(images):
            found = pixels(images)
            for n, image in enumerate(images):
                if any(np.array_equal(image.numpy(), splits["train"].images[row]) for row in (5, 7)):
                    found[n] = value
            return found

        chunks, files = chunks_of({"train": 9}, 4), ChunkFiles(tmp_path, SETTINGS)
        named = "5.jpg, 7.jpg" if names else "image 5, image 7"
        held = {"nan": "NaN", "inf": "infinite values", "0.0": "only zeros", "70000.0": "infinite values"}
        with pytest.raises(
            InputError, match=rf"train: of the features, those of {named} hold {held[str(value)]}\. Look"
        ):
            run(splits, chunks, files, spoiled, torch.float16)
        assert [files.done(one) for one in chunks] == [True, False, False]

    def test_an_error_while_reading_is_told(self, tmp_path):
        class Broken:
            shape, dtype = (4, 3, 2, 2), np.dtype(np.uint8)

            def __len__(self):
                return 4

            def __getitem__(self, index):
                raise InputError("b.jpg cannot be decoded")

        splits = {"train": CaptionedImages(Broken(), ["a"] * 4, np.arange(4))}
        with pytest.raises(InputError, match=r"b\.jpg cannot be decoded"):
            run(splits, chunks_of({"train": 4}, 2), ChunkFiles(tmp_path, SETTINGS))


class TestChunkFiles:
    def test_of_another_command(self, tmp_path):
        chunk = chunks_of({"train": 2}, 2)[0]
        ChunkFiles(tmp_path / PARTS, SETTINGS).write(chunk, np.ones((2, 3)))
        other = SETTINGS | {"regions": 7, "data": {"train": "abd"}}
        with pytest.raises(InputError, match=r"another command \(other regions, data\)"):
            ChunkFiles(tmp_path / PARTS, other)
        assert ChunkFiles(tmp_path / PARTS, dict(reversed(SETTINGS.items()))).done(chunk)
        assert not ChunkFiles(tmp_path / PARTS, other, overwrite=True).done(chunk)
        with pytest.raises(InputError, match="another command"):
            ChunkFiles(tmp_path / PARTS, SETTINGS)

    @pytest.mark.parametrize("version", ['"version": 2', '"other": 1'])
    def test_of_another_version(self, tmp_path, version):
        chunk = chunks_of({"train": 2}, 2)[0]
        ChunkFiles(tmp_path, SETTINGS).write(chunk, np.ones((2, 3)))
        path = tmp_path / "settings.json"
        path.write_text(path.read_text().replace('"version": 1', version))
        with pytest.raises(InputError, match=r"unfinished work of version (2|None); this vsehub continues version 1"):
            ChunkFiles(tmp_path, SETTINGS)
        assert not ChunkFiles(tmp_path, SETTINGS, overwrite=True).done(chunk)

    def test_a_chunk_that_claims_more_than_it_holds(self, tmp_path):
        files, chunk = ChunkFiles(tmp_path, SETTINGS), chunks_of({"train": 2}, 2)[0]
        for shape in ((2, 10**12), (2, 2**62, 2**62), (2, -1)):
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
            with zipfile.ZipFile(files.path(chunk.name), "w") as archive:
                archive.writestr("features.npy", header.getvalue())
            with pytest.raises(InputError, match="was damaged and has been removed"):
                files.read(chunk)

    def test_what_is_not_ours_stays(self, tmp_path):
        (tmp_path / "notes-of-mine.npz").write_text("precious")
        for overwrite in (False, True):
            with pytest.raises(InputError, match="is in the way"):
                ChunkFiles(tmp_path, SETTINGS, overwrite)
        files = ChunkFiles(tmp_path / PARTS, SETTINGS)
        (tmp_path / PARTS / "mine-of-all.npz").write_text("precious")
        (tmp_path / PARTS / ".train-000000000.part.npz.x.part").write_text("half")
        files.write(chunks_of({"train": 2}, 2)[0], np.ones((2, 3)))
        files.remove()
        assert [path.name for path in (tmp_path / PARTS).iterdir()] == ["mine-of-all.npz"]

    @pytest.mark.parametrize("damage", ["cut", "of another size", "text"])
    def test_a_damaged_chunk_is_found_again(self, tmp_path, damage):
        files, chunk = ChunkFiles(tmp_path, SETTINGS), chunks_of({"train": 2}, 2)[0]
        files.write(chunk, np.ones((3 if damage == "of another size" else 2, 3)))
        path = files.path(chunk.name)
        if damage != "of another size":
            path.write_bytes(path.read_bytes()[:-5] if damage == "cut" else b"no array")
        with pytest.raises(InputError, match="was damaged and has been removed; run the same command again"):
            files.read(chunk)
        assert not files.done(chunk)

    def test_the_first_process_waits_while_others_go_on(self, tmp_path):
        files, chunks, said = ChunkFiles(tmp_path, SETTINGS), chunks_of({"train": 6}, 2), []
        files.write(chunks[1], np.ones((2, 3)))

        def other():
            for chunk in (chunks[0], chunks[2]):
                time.sleep(0.7)
                files.write(chunk, np.ones((2, 3)))

        helper = threading.Thread(target=other)
        helper.start()
        files.wait(chunks, 1.2, said.append)  # less than both take together: each new chunk begins the time anew
        helper.join()
        assert said == ["waiting for 2 chunks of other processes"]
        files.path(chunks[1].name).unlink()
        with pytest.raises(InputError, match=r"no other process has finished .* 1 are missing, first train-000000002"):
            files.wait(chunks, 0.3, said.append)


class TestLayout:
    def test_precomp_reads_it(self, tmp_path):
        splits = {name: split([3, 5, 4, 7], seed) for seed, name in enumerate(("train", "val", "test"))}
        each = captions_each(splits, None)
        assert each == 3
        chunks, files = chunks_of(dict.fromkeys(splits, 4), 3), ChunkFiles(tmp_path / PARTS, SETTINGS)
        run(splits, chunks, files)
        written = assemble(tmp_path, splits, chunks, files, each)
        for name, given in splits.items():
            found = Precomp(tmp_path).load(name)
            assert np.array_equal(found.images, pixels(torch.from_numpy(given.images)))
            assert found.names == given.names
            assert found.image_index.tolist() == np.repeat(np.arange(4), 3).tolist()
            assert found.captions == [f"caption {n} of image {image}" for image in range(4) for n in range(3)]
        for name, facts in written.items():
            data = (tmp_path / name).read_bytes()
            assert facts == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        np.testing.assert_array_equal(np.load(tmp_path / "dev_ims.npy", mmap_mode="r").shape, (4, 4, 3))

    def test_as_many_captions_of_every_image(self):
        splits = {"train": split([6, 9, 7])}
        assert captions_each(splits, None) == 5
        assert captions_each(splits, 6) == 6
        assert len(kept_captions(splits["train"], 6)) == 18
        with pytest.raises(InputError, match=r"images of train with fewer than 7 captions: 0\.jpg; give captions=6"):
            captions_each(splits, 7)
        with pytest.raises(
            InputError, match=r"images of train with fewer than 1 captions: 1\.jpg; take images without"
        ):
            captions_each({"train": split([2, 0, 1])}, None)
        with pytest.raises(InputError, match="captions is 0"):
            captions_each(splits, 0)

    def test_names_of_an_earlier_extraction_do_not_stay(self, tmp_path):
        (tmp_path / "train_ids.txt").write_text("old.jpg\n")
        splits = {"train": split([1, 1], names=False)}
        chunks, files = chunks_of({"train": 2}, 1), ChunkFiles(tmp_path / PARTS, SETTINGS)
        run(splits, chunks, files)
        assert sorted(assemble(tmp_path, splits, chunks, files, 1)) == ["train_caps.txt", "train_ims.npy"]
        assert Precomp(tmp_path).load("train").names is None


class TestFolder:
    def done(self, folder):
        splits = {"train": split([1, 1, 1])}
        chunks, files = chunks_of({"train": 3}, 2), ChunkFiles(folder / PARTS, SETTINGS)
        run(splits, chunks, files)
        written = assemble(folder, splits, chunks, files, 1)
        write_json(folder / MANIFEST, {"schema": 1, "settings": SETTINGS, "files": written})
        files.remove()
        return written

    def test_finished(self, tmp_path):
        self.done(tmp_path)
        assert not (tmp_path / PARTS).exists()
        assert finished(tmp_path, SETTINGS, file_names(["train"]))
        with pytest.raises(InputError, match=r"holds another extraction \(other model, batch\)"):
            finished(tmp_path, SETTINGS | {"model": "y", "batch": 3}, file_names(["train"]))
        assert finished(tmp_path, SETTINGS, file_names(["train"]))
        assert not finished(tmp_path, SETTINGS, file_names(["train"]), overwrite=True)
        assert not list(tmp_path.iterdir())

    def test_files_that_changed(self, tmp_path):
        path, written = tmp_path / "train_ims.npy", self.done(tmp_path)
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        verify(tmp_path, written, thoroughly=False)
        with pytest.raises(InputError, match=r"train_ims\.npy holds other bytes .* overwrite=true"):
            finished(tmp_path, SETTINGS, file_names(["train"]), thoroughly=True)
        path.write_bytes(data[:-4])
        with pytest.raises(InputError, match=rf"train_ims\.npy has {len(data) - 4} bytes, not {len(data)}"):
            finished(tmp_path, SETTINGS, file_names(["train"]))
        path.unlink()
        with pytest.raises(InputError, match=r"train_ims\.npy is missing"):
            finished(tmp_path, SETTINGS, file_names(["train"]))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                lambda text: text.replace('"schema": 1', '"schema": 2'),
                "an extraction's manifest, is of version 2 of its format",
            ),
            (
                lambda text: text.replace("train_ims.npy", "../precious.npy"),
                "does not name the files of this extraction",
            ),
            (
                lambda text: text.replace('"sha256"', '"md5"'),
                "does not name the files of this extraction with size",
            ),
            (lambda text: text.replace('"files": {', '"files": [], "old": {'), "files is of another type than"),
        ],
    )
    def test_a_manifest_that_cannot_be_used(self, tmp_path, change, message):
        self.done(tmp_path)
        (tmp_path / MANIFEST).write_text(change((tmp_path / MANIFEST).read_text()))
        with pytest.raises(InputError, match=message) as caught:
            finished(tmp_path, SETTINGS, file_names(["train"]))
        assert "overwrite=true" in str(caught.value)
        assert not finished(tmp_path, SETTINGS, file_names(["train"]), overwrite=True)

    @pytest.mark.parametrize(
        "content", ["", '{"schema": 1, "settings"', "[" * 100_000, '{"name": "an extension"}', "[]"]
    )
    def test_features_beside_a_manifest_of_something_else_are_never_touched(self, tmp_path, content):
        self.done(tmp_path)
        (tmp_path / MANIFEST).write_text(content)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        for overwrite in (False, True):
            with pytest.raises(InputError, match=r"manifest\.json is damaged, or no manifest of an extraction"):
                finished(tmp_path, SETTINGS, file_names(["train"]), overwrite=overwrite)
        assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    def test_text_is_no_flag(self, tmp_path):
        """overwrite=no on a command line is the text "no", which Python counts as true."""
        self.done(tmp_path)
        with pytest.raises(InputError, match="overwrite is 'no'; expected true or false"):
            finished(tmp_path, SETTINGS, file_names(["train"]), overwrite="no")
        with pytest.raises(InputError, match="verify is 'no'; expected true or false"):
            finished(tmp_path, SETTINGS, file_names(["train"]), thoroughly="no")
        with pytest.raises(InputError, match="overwrite is 'no'; expected true or false"):
            ChunkFiles(tmp_path / PARTS, SETTINGS, overwrite="no")
        assert finished(tmp_path, SETTINGS, file_names(["train"]))

    def test_somebodys_own_features_are_left_alone(self, tmp_path):
        (tmp_path / "dev_ims.npy").write_text("precious")
        for overwrite in (False, True):
            with pytest.raises(InputError, match=r"holds dev_ims\.npy, and no manifest\.json .* did not write them"):
                finished(tmp_path, SETTINGS, file_names(["train", "val"]), overwrite=overwrite)
        assert (tmp_path / "dev_ims.npy").read_text() == "precious"
        assert not finished(tmp_path, SETTINGS, file_names(["train"]))
        ChunkFiles(tmp_path / PARTS, SETTINGS)  # begun: killed while the files were put together
        assert not finished(tmp_path, SETTINGS, file_names(["train", "val"]))
        assert (tmp_path / "dev_ims.npy").exists()

    def test_room(self, tmp_path):
        require_room(tmp_path / "out", 10**6)
        with pytest.raises(InputError, match=r"GB free\. Free room"):
            require_room(tmp_path / "out", 10**17)
