"""Secrets in addresses: what is opened has them, and nothing that is written or printed does."""

import base64
import functools
import gzip
import http.server
import io
import json
import threading
import time
import zipfile
from urllib.parse import quote, unquote

import numpy as np
import pytest
from broken_off import stopped
from run_files import record

from vsehub.io.address import MASK, masked, masked_output, remember
from vsehub.io.address import _addresses as ADDRESSES
from vsehub.io.address import _secrets as SECRETS

CANARY = "Zk9+q4canary7/Wv"  # as it stands in a URI, with percent signs where they are needed
IN_URI = quote(CANARY, safe="")
LOGIN = f"http://joecanary:{IN_URI}@HOST/FILE"
TOKEN = f"http://HOST/FILE?download=1&X-Amz-Security-Token={IN_URI}"

TRAINED = (
    *("data=pairs", "embedding_dim=8", "loader.batch_size=16", "callbacks.warmup.steps=0", "loss=max", "bank=none"),
    *("trainer.max_epochs=1", "+trainer.log_every_n_steps=1"),
    *(f"data.splits.{split}={split}.csv" for split in ("train", "val", "test")),
)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a folder to those who give the secret."""

    def send_head(self):
        login = self.headers.get("Authorization", "").removeprefix("Basic ")
        self.server.authorized.append(CANARY in base64.b64decode(login).decode() + unquote(self.path))
        return super().send_head()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def address(tmp_path):
    """A function that gives the address of a file on a server in a form, in quotes for Hydra."""
    folder = tmp_path.parent / f"{tmp_path.name}-served"
    folder.mkdir()
    rows = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.save(folder / "a.npy", rows)
    np.save(folder / "b.npy", rows[::-1])
    for name, first, last in (("train", 0, 60), ("val", 60, 70), ("test", 70, 80)):
        lines = [f"{row},{row}\n" for row in range(first, last)]
        (tmp_path / f"{name}.csv").write_text("".join(["query,item\n", *lines]))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    server.authorized = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield lambda form, file: f"'{form.replace('HOST', f'127.0.0.1:{server.server_port}').replace('FILE', file)}'"
    assert all(server.authorized)
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(vsehub, tmp_path):
    """A function that runs a command whose every file lies below the test's folder, and looks for the secret after."""
    names = ("XDG_CACHE_HOME", "TMPDIR", "WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")
    variables = dict.fromkeys(names, str(tmp_path / "own"))
    variables |= {"NETRC": str(tmp_path / "absent"), "WANDB_MODE": "offline"}
    (tmp_path / "own").mkdir()

    def run(*arguments, status=0, **settings):
        ADDRESSES.clear()  # as in a process of its own
        SECRETS.clear()
        done = vsehub(*arguments, cwd=tmp_path, status=status, **variables, **settings)
        look(f"{done.out}\n{done.err}".encode(), f"the output of {arguments}")
        for path in tmp_path.rglob("*"):
            look(str(path).encode(), f"the name of {path}")
            if path.is_file() and not path.name.startswith("given"):
                look(path.read_bytes(), path)
        return f"{done.out}{done.err}"

    return run


def look(content, where):
    """Look for the secret in bytes, unpacked if they are compressed."""
    forms = (CANARY, IN_URI, CANARY[:8], IN_URI[:8], base64.b64encode(f"joecanary:{CANARY}".encode()).decode())
    for form in forms:
        assert form.encode() not in content, f"{where}: {content[:3000]!r}"
    if content[:2] == b"\x1f\x8b":
        look(gzip.decompress(content), f"{where} unpacked")
    elif content[:2] == b"PK" and zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                look(archive.read(name), f"{name} in {where}")


@pytest.mark.parametrize("form", [LOGIN, TOKEN])
def test_vectors_behind_an_address(run, address, tmp_path, form):
    sides = [f"queries={address(form, 'a.npy')}", f"items={address(form, 'b.npy')}", "k=5", "criterion=csls"]
    (tmp_path / "ids.txt").write_text("".join(f"https://cdn/photo?id=177&w={row}\n" for row in range(80)))
    (tmp_path / "labels.txt").write_text("password = rose\n" * 80)
    run("rerank", *sides, "item_ids=ids.txt", "item_labels=labels.txt", "out=there")
    hub = json.loads((tmp_path / "there" / "result.json").read_text())["hubs"][0]
    assert (hub["id"].startswith("https://cdn/photo?id=177&w="), hub["label"]) == (True, "password = rose")
    assert "queries=http" in run("index", "there", status=2), "no address in a record is opened"
    run("index", "there", *sides[:2])
    for name in ("result.json", "index.html", "USAGE.md"):
        assert MASK in (tmp_path / "there" / name).read_text()


def test_commands_that_fail(run, address):
    sides = [f"queries={address(LOGIN, 'a.npy')}", f"items={address(LOGIN, 'b.npy')}"]
    absent = address(LOGIN, "absent.npy")
    for change in ("queries", "truth", "nonsense", "k", "criterion", "--nonsense"):
        run("rerank", *sides, f"{change}={absent}", status=2)
    run("rerank", sides[0], f"items={absent.strip(chr(39))}?a=b", status=2)  # quotes are missing
    for arguments in ([absent], ["rerank", *sides, "-m", f"k={absent},5"]):
        run(*arguments, status=2)
    run("rerank", *sides, "criterion=csls", "out=ranked")
    for engine, uri in (
        ("pgvector", f"postgresql://me:{IN_URI}@127.0.0.1:1/base?sslpassword={IN_URI}"),
        ("pgvector", f"host=127.0.0.1 port=1 user=me password=\\'{CANARY} and more\\'"),
        ("milvus", f"http://joe:{IN_URI}@127.0.0.1:1"),
    ):
        assert MASK in run("index", "ranked", *sides, f"engine={engine}", f"uri='{uri}'", status=2)


@pytest.mark.long
def test_trainings_of_all_loggers(run, address, tmp_path):
    """A sweep; its runs go on, and are measured again, only with the address given again."""
    sides = [f"data.{side}={address(TOKEN, 'a.npy')}" for side in ("images", "texts")]
    folders = ("hydra.sweep.dir=sweep", "hydra.sweep.subdir=${hydra:job.num}")
    run("train", "-m", *TRAINED, *sides, "logger=csv,tensorboard,wandb", *folders)
    for number in range(3):
        run_record = record(tmp_path / "sweep" / str(number))
        assert (run_record["status"], MASK in run_record["config"]["data"]["images"]) == ("finished", True)
    assert "is finished after" in run("train", "-m", *TRAINED, *sides, "logger=csv", *folders)
    run("train", "-m", *TRAINED, *sides, "loss=max,sum", "data.pairs=nowhere", "hydra.sweep.dir=failing", status=2)
    best = f"checkpoint={tmp_path / 'sweep' / '0' / 'checkpoints' / 'best.safetensors'}"
    assert "data.images=ADDRESS" in run("evaluate", best, "out=again", status=2)
    run("evaluate", best, "out=again", *sides)
    stopped(tmp_path / "sweep" / "2")
    assert "data.images=ADDRESS" in run("train", "resume=sweep/2", status=2)
    run("train", "resume=sweep/2", *sides, "trainer.max_epochs=2")
    assert record(tmp_path / "sweep" / "2")["epochs"] == 2


@pytest.mark.long
def test_a_configuration_of_ones_own(run, address, tmp_path):
    """An address in a file of --config-dir, the secret in it or in a variable of the environment."""
    (tmp_path / "given" / "data").mkdir(parents=True)
    variable = address("http://HOST/FILE?token=${oc.env:CANARY}", "a.npy")
    (tmp_path / "given" / "data" / "given_mine.yaml").write_text(
        f"defaults: [pairs]\nimages: {address(LOGIN, 'a.npy')}\ntexts: {variable}\n"
    )
    encoders = ("image_encoder=image_features", "text_encoder=text_features")
    settings = [*TRAINED[1:], *encoders, "data=given_mine", f"--config-dir={tmp_path / 'given'}"]
    run("train", "-m", *settings, "seed=0,1", "hydra.sweep.dir=sweep", CANARY=IN_URI)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/R&D/b.npy?versionId=3", None),
        ("file:///a?b#c", None),
        ("http://[::1]:80/a@b.npy::key", None),
        ("hf://joe/name@v1", None),
        ("postgresql://me:@a:1,b:2/base?host=/tmp/x", None),
        ("runs/user=1/a.npy", None),
        ("http://u:p/q?r#s@host/a.npy?version=3&T=x::key", f"http://{MASK}@host/a.npy?version=3&T={MASK}"),
        (f"http://{IN_URI}@host/a?download=1&{IN_URI}", f"http://{MASK}@host/a?download=1&{MASK}"),
        ("postgresql://me:p w@a:1,b:2/base?options=x", f"postgresql://{MASK}@a:1,b:2/base?options={MASK}"),
        ("abfss://box@account/a?sig=x", f"abfss://box@account/a?sig={MASK}"),
        ("from s3://b/c::http://u:p@h/d, http://h2/#s", f"from s3://b/c::http://{MASK}@h/d, http://h2/#{MASK}"),
        ("host=h password = 'a b' dbname='c'", f"host=h password = {MASK}"),
    ],
)
def test_what_is_shown(text, shown):
    assert masked(text) == (text if shown is None else shown)
    assert masked(masked(text)) == masked(text)
    assert masked(json.loads(masked(json.dumps(text)))) == masked(text)


def test_a_secret_without_its_address():
    remember(f"http://me:{IN_URI}@host")
    assert masked_output(f"a log: {CANARY}, {IN_URI}") == f"a log: {MASK}, {MASK}"
    caption = "password = rose, https://cdn/photo?id=177&w=400"
    assert masked_output(caption) == caption


@pytest.mark.parametrize("text", ["a" * 100_000, "a." * 50_000, "a:/" * 33_000, "ab:/c:d " * 12_000 + "\n"])
def test_long_texts_are_masked_in_linear_time(text):
    began = time.process_time()
    assert masked(text) == text
    assert masked(f"{text} s3://token@bucket") == f"{text} s3://{MASK}@bucket"
    assert time.process_time() - began < 5
