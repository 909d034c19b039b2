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

from vsehub.data import open_vectors
from vsehub.io.address import MASK, Address, masked, set_aside

CANARY = "Zk9+q4canary7/Wv"  # as it stands in a URI, with percent signs where they are needed
USER = "joecanary"
IN_URI = quote(CANARY, safe="")
FORMS = (
    f"http://{USER}:{IN_URI}@HOST/FILE",
    f"http://{IN_URI}@HOST/FILE",
    *(f"http://HOST/FILE?{name}={IN_URI}" for name in ("token", "X-Amz-Security-Token", "api-key", "sig", "auth")),
    f"http://HOST/FILE?download=1&{IN_URI}",
    f"http://HOST/FILE#{IN_URI}",
)
SETTINGS = (
    *("data=pairs", "embedding_dim=8", "loader.batch_size=16", "callbacks.warmup.steps=0", "loss=max", "bank=none"),
    *("trainer.max_epochs=1", "trainer.log_every_n_steps=1"),
)


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a folder to those who give the secret."""

    def send_head(self):
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        given = base64.b64decode(given).decode() + unquote(self.path)
        self.server.asked.append(CANARY in given)
        if not self.server.opened and CANARY not in given:
            self.send_error(403, "forbidden")
            return None
        return super().send_head()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def served(tmp_path):
    """A folder on a server, of two files of vectors and a table, and the addresses of a file in a form."""
    folder = tmp_path.parent / f"{tmp_path.name}-served"
    folder.mkdir()
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(80, 6)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.save(folder / "a.npy", rows)
    np.save(folder / "b.npy", rows[::-1])
    np.save(folder / "c.npy", -rows[:50])
    for name, first, last in (("train", 0, 60), ("val", 60, 70), ("test", 70, 80)):
        lines = [f"{row},{row}" for row in range(first, last)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["query,item", *lines]) + "\n")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    server.asked, server.opened = [], False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.host = f"127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def run(vsehub, tmp_path):
    """A function that runs a command whose every file lies below the test's folder, and looks for the secret after."""
    variables = {name: str(tmp_path / "own") for name in ("XDG_CACHE_HOME", "TMPDIR", "WANDB_DIR", "WANDB_CACHE_DIR")}
    variables |= {name: str(tmp_path / "own") for name in ("WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    (tmp_path / "own").mkdir()

    def run(*arguments, status=0, **settings):
        done = vsehub(*arguments, cwd=tmp_path, status=status, **variables, NETRC=str(tmp_path / "absent"), **settings)
        require_absent(f"{done.out}\n{done.err}".encode(), f"the output of {arguments}")
        for path in tmp_path.rglob("*"):
            require_absent(str(path).encode(), f"the name of {path}")
            if path.is_file() and not path.name.startswith("given"):
                look(path.read_bytes(), path)
        return f"{done.out}{done.err}"

    return run


def look(content, where):
    require_absent(content, where)
    if content[:2] == b"\x1f\x8b":
        look(gzip.decompress(content), f"{where} unpacked")
    elif content[:2] == b"PK" and zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                look(archive.read(name), f"{name} in {where}")


def require_absent(content, where):
    forms = (CANARY, IN_URI, CANARY[:8], IN_URI[:8], base64.b64encode(f"{USER}:{CANARY}".encode()).decode())
    for form in forms:
        assert form.encode() not in content, f"{where}: {content[:3000]!r}"


def address(form, server, file):
    return form.replace("HOST", server.host).replace("FILE", file)


ALIKE = FORMS[4:7]  # these differ from the one before in a name alone


@pytest.mark.parametrize("form", [pytest.param(one, marks=pytest.mark.long) if one in ALIKE else one for one in FORMS])
def test_vectors_behind_an_address(run, served, tmp_path, form):
    served.opened = "#" in form  # a fragment is not sent
    given = [f"queries={address(form, served, 'a.npy')}", f"items={address(form, served, 'b.npy')}", "k=5"]
    run("diagnose", *given, "truth=val.csv", "out=there")
    assert served.opened or all(served.asked)
    record = json.loads((tmp_path / "there" / "result.json").read_text())
    assert MASK in record["queries"]["path"]
    assert MASK in record["command"]
    absent = address(form, served, "absent.npy")
    said = run("diagnose", f"queries={absent}", given[1], "out=other", status=2)
    assert str(Address(absent)) in said


def test_every_setting_of_a_command_that_fails(run, served):
    own = address(FORMS[0], served, "a.npy")
    for setting in ("queries", "items", "truth", "reference", "item_ids", "nonsense", "k", "engine"):
        sides = [f"{name}={own}" for name in ("queries", "items") if name != setting]
        run("rerank", *sides, "criterion=csls", f"{setting}={own.replace('a.npy', 'absent.npy')}", status=2)
    postgres = f"postgresql://me:{IN_URI}@127.0.0.1:1/base?sslpassword={IN_URI}"
    keywords = f"host=127.0.0.1 port=1 user=me password='{CANARY}'"
    sides = (f"queries={own}", f"items={own}", "criterion=csls")
    run("rerank", *sides, "normalize=true", "out=ranked")
    again = ("index", "ranked", *sides[:2])
    said = run(*again, "engine=pgvector", f"uri={postgres}", status=2)
    assert f"postgresql://me:{MASK}@127.0.0.1:1/base?sslpassword={MASK}: OperationalError" in said
    assert f"host=127.0.0.1 port=1 user=me password={MASK}" in run(
        *again, "engine=pgvector", f"uri={keywords}", status=2
    )
    for engine in ("milvus", "qdrant", "lancedb"):
        run(*again, f"engine={engine}", f"uri=http://joe:{IN_URI}@127.0.0.1:1", status=2)
    run("rerank", own, status=2)
    run("rerank", f"--{own}", status=2)
    run(own, status=2)
    run("rerank", *sides, "truth=absent", status=1, VSEHUB_TRACEBACK="1")
    run("rerank", *sides, "--cfg", "job")


def test_an_index_and_its_notes(run, served, tmp_path):
    own = address(FORMS[2], served, "FILE")
    sides = [f"{side}={own.replace('FILE', file)}" for side, file in (("queries", "a.npy"), ("items", "b.npy"))]
    sides += [f"reference={own.replace('FILE', 'c.npy')}"]
    run("rerank", *sides, "criterion=csls", "k=5", "out=ranked")
    assert "queries=http" in run("index", "ranked", status=2), "no address in a record is opened"
    for engine in ("flat", "lancedb"):
        run("index", "ranked", *sides, f"engine={engine}", "overwrite=true")
        assert MASK in (tmp_path / "ranked" / "USAGE.md").read_text()


@pytest.mark.long
def test_trainings_of_all_loggers(run, served, tmp_path):
    """A sweep; its runs go on, and are measured again, only with the address given again."""
    tables = [f"data.splits.{split}={tmp_path / split}.csv" for split in ("train", "val", "test")]
    sides = [
        f"data.{side}={address(form, served, 'a.npy')}"
        for side, form in zip(("images", "texts"), FORMS[3:5], strict=True)
    ]
    loggers = "logger=csv,tensorboard,wandb"
    run(
        "train",
        "-m",
        *SETTINGS,
        *tables,
        *sides,
        loggers,
        "hydra.sweep.dir=sweep",
        "hydra.sweep.subdir=${hydra:job.num}",
    )
    for number in range(3):
        record = json.loads((tmp_path / "sweep" / str(number) / "run.json").read_text())
        assert record["status"] == "finished"
        assert MASK in record["config"]["data"]["images"]
        assert (tmp_path / "sweep" / str(number) / ".hydra" / "overrides.yaml").is_file()
    best = f"checkpoint={tmp_path / 'sweep' / '0' / 'checkpoints' / 'best.safetensors'}"
    said = run("evaluate", best, "out=again", status=2)
    assert "data.images=ADDRESS" in said
    run("evaluate", best, "out=again", *sides)
    # A run that was stopped before its last epoch.
    run("train", *SETTINGS, *tables, *sides, "hydra.run.dir=stopped")
    record = json.loads((tmp_path / "stopped" / "run.json").read_text())
    (tmp_path / "stopped" / "run.json").write_text(json.dumps(record | {"status": "stopped"}))
    assert "data.images=ADDRESS" in run("train", "resume=stopped", status=2)
    run("train", "resume=stopped", *sides, "trainer.max_epochs=2")
    assert json.loads((tmp_path / "stopped" / "run.json").read_text())["status"] == "finished"


@pytest.mark.long
def test_a_configuration_of_ones_own(run, served, tmp_path):
    """An address in a file of --config-dir, the secret in it or in a variable of the environment."""
    tables = [f"data.splits.{split}={tmp_path / split}.csv" for split in ("train", "val", "test")]
    (tmp_path / "given" / "data").mkdir(parents=True)
    literal = address(FORMS[0], served, "a.npy")
    variable = address("http://HOST/FILE?token=${oc.env:CANARY}", served, "a.npy")
    (tmp_path / "given" / "data" / "given_mine.yaml").write_text(
        f"defaults: [pairs]\nimages: {literal}\ntexts: {variable}\n"
    )
    settings = [*SETTINGS[1:], "data=given_mine", *tables, f"--config-dir={tmp_path / 'given'}"]
    run("train", *settings, "hydra.run.dir=there", CANARY=IN_URI)
    run("train", "-m", *settings, "seed=0,1", "hydra.sweep.dir=sweep", CANARY=IN_URI)
    assert all(served.asked)


def test_a_quoted_connection_string_is_masked(run, served):
    own = address(FORMS[0], served, "a.npy")
    keywords = f"uri='host=127.0.0.1 port=1 password={CANARY}'"
    run("index", "absent", f"queries={own}", f"items={own}", "engine=pgvector", keywords, status=2)


def test_an_address():
    """What is shown and what is opened, also where two look alike; a masked one that nobody gave is refused."""
    for text, shown in (
        ("s3://bucket/a/b.npy", "s3://bucket/a/b.npy"),
        ("file:///a?b#c", "file:///a?b#c"),
        ("http://[::1]:80/a.npy", "http://[::1]:80/a.npy"),
        ("http://u:p/q?r#s@host/a.npy?version=3&T=x::key", "http://***@host/a.npy?version=3&T=***::key"),
        ("http:/u:p@host/a", "http:/***@host/a"),
        ("http://host/a;b=c/d", "http://host/a;***/d"),
        ("postgresql://me@a:1,b:2/base?options=x", "postgresql://me@a:1,b:2/base?options=***"),
        ("runs/user=1/a.npy", "runs/user=1/a.npy"),
    ):
        found = Address(text)
        assert (str(found), f"{found}", json.loads(json.dumps(found))) == (shown,) * 3
        assert Address(str(found)).opened("items") == text
    first, second = Address("http://host/alike?id=1"), Address("http://host/alike?id=2")
    assert (first, second) == ("http://host/alike?id=***", "http://host/alike?id=***2")
    assert (first.opened("x")[-1], second.opened("x")[-1]) == ("1", "2")
    for several in (False, True):
        for argument in (f"uri=host=h password={CANARY}", f"uri='host=h password={CANARY}'"):
            assert set_aside(argument, several) == f"uri=host=h password={MASK}"
    assert masked(f"a log: {CANARY}, {IN_URI}") == f"a log: {MASK}, {MASK}"
    with pytest.raises(ValueError, match=r"items: http://nobody/a.npy.sig=... is masked.* Give the setting"):
        open_vectors("http://nobody/a.npy?sig=***", "items")


@pytest.mark.parametrize("text", ["a" * 100_000, "a." * 50_000, "a:/" * 33_000])
def test_long_texts_are_masked_in_linear_time(text):
    began = time.process_time()
    assert masked(text) == text
    assert masked(f"{text} s3://token@bucket") == f"{text} s3://{MASK}@bucket"
    assert time.process_time() - began < 5
