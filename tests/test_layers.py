"""Imports point down, heavy ones stay where they belong, and what must start fast does."""

import ast
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "vsehub"
FILES = sorted(ROOT.rglob("*.py"))
L0 = {"types", "checks", "components", "extras", "io", "recipes", "sets"}
L1 = {"similarities", "losses", "encoders", "metrics"}
L2 = {
    "neighbors": set(),
    "criteria": {"neighbors"},
    "data": set(),
    "evaluation": {"criteria", "data", "neighbors"},
    "export": {"data", "evaluation", "neighbors"},
    "extraction": {"data"},
    "report": {"evaluation"},  # for types; that it loads no torch is tested below
    "ranking": {"criteria", "data", "neighbors"},
    "serving": {"criteria", "data", "neighbors"},
}
ALLOWED = (
    {name: {"checks", "extras", "io"} for name in L0}
    | {"checks": set(), "extras": {"checks"}, "types": {"checks", "components", "sets"}}
    | {name: L0 for name in L1}
    | {name: L0 | L1 | siblings for name, siblings in L2.items()}
    | {"__main__": {"cli"}, "data": L0, "training": L0 | L1 | set(L2), "web": L0 | L1 | set(L2)}
    | {"cli": L0 | L1 | set(L2) | {"training", "web"}}
)
# Who may import a library: packages or files.
OUTSIDE = {
    "hydra": {"cli"},
    "omegaconf": {"cli"},
    "pytorch_lightning": {"training"},
    "lightning_fabric": {"training"},  # which comes with pytorch_lightning
    "lightning": set(),
    "faiss": {"neighbors/faiss.py"},
    "pymilvus": {"serving/databases/milvus.py"},
    "milvus_lite": {"serving/databases/milvus.py"},
    "lancedb": {"serving/databases/lancedb.py"},
    "qdrant_client": {"serving/databases/qdrant.py"},
    "psycopg": {"serving/databases/pgvector.py"},
    "pgvector": {"serving/databases/pgvector.py"},
    "pgserver": set(),
    "ray": {"ranking/ray.py"},
    "matplotlib": {"report"},
    "pandas": {"report"},
    "jinja2": {"report"},
    "fastapi": {"web"},
    "starlette": {"web"},
    "uvicorn": {"web"},
    "pydantic": {"web"},
    "wandb": {"training/wandb_view.py"},
    "wandb_workspaces": {"training/wandb_view.py"},
    "transformers": {
        "data/text/vocabulary.py",
        "encoders/pretrained/configurations.py",
        "encoders/pretrained/joint/hf.py",
        "encoders/pretrained/texts.py",
    },
    "tokenizers": {"encoders/pretrained/joint/open_clip.py", "data/text/vocabulary.py"},
    "datasets": {"data/photos/huggingface.py"},
    "open_clip": {
        "data/text/vocabulary.py",
        "encoders/pretrained/configurations.py",
        "encoders/pretrained/joint/open_clip.py",
    },
    "regex": {"data/text/vocabulary.py"},  # which comes with open_clip
    "huggingface_hub": {
        "encoders/pretrained/joint/open_clip.py",
        "evaluation/hub.py",
    },
    "peft": {"encoders/pretrained/joint/towers.py"},
    "torchvision": {"encoders/pretrained/networks.py"},
    "timm": {"encoders/pretrained/networks.py"},
    "onnxruntime": {"export/onnx.py"},
    "onnx": set(),  # torch's exporter imports these two
    "onnxscript": set(),
    "lazy_loader": {"__init__.py"},
    "safetensors": {
        "data/vectors/readers.py",
        "encoders/pretrained/networks.py",
        "evaluation/trained.py",
        "evaluation/checkpoint.py",
        "serving/estimator.py",
    },
}


HEAVY = (
    """"pytorch_lightning", "torchmetrics", "torchvision", "transformers", "timm", "wandb", "ray", "torch._dynamo\""""
)


@cache
def tree(path):
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(path):
    """Every module that a file imports, in functions and by `extras.package` too; `from vsehub import x`: vsehub.x."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "package":
            yield from (one.value for one in node.args[2:] if isinstance(one, ast.Constant))
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            if node.module == "vsehub":
                yield from (f"vsehub.{name.name}" for name in node.names)
            else:
                yield node.module


def place(path):
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py"), relative.as_posix()


def test_imports_point_down():
    for path in FILES:
        package, name = place(path)
        for module in modules(path):
            if module.startswith("vsehub."):
                other = module.split(".")[1]
                # The package's own name and version stand above all layers.
                if other in ("__version__", package) or package == "__init__":
                    continue
                assert other in ALLOWED[package], f"{name} imports {module}"
                continue
            top = module.split(".")[0]
            if top in OUTSIDE:
                assert OUTSIDE[top] & {package, name, path.name}, f"{name} imports {module}"
            if package in L1:
                here = {"torch", "numpy", "vsehub", "lazy_loader"}
                here |= {one for one, files in OUTSIDE.items() if name in files}
                here |= {"scipy"} if name == "encoders/cca.py" else set()  # sparse products of counted words
                assert top in here or top in sys.stdlib_module_names, f"{name} imports {module}"
            if package == "report":
                assert top != "torch", f"{name} imports {module}"


# Modules of the standard library that Windows lacks.
POSIX = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
# Functions that `os` lacks there.
POSIX_OS = {"fork", "forkpty", "getuid", "geteuid", "getgid", "getpgid", "killpg", "mkfifo", "posix_fallocate"}
POSIX_OS |= {"sched_getaffinity", "setsid", "statvfs", "sysconf", "uname"}


def unguarded(tree):
    """What Windows lacks: modules outside `try ... except ImportError`, functions outside `if hasattr(os, ...)`."""
    guarded = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Try) and any("ImportError" in ast.unparse(one.type or node) for one in node.handlers)
        ) or (isinstance(node, ast.With) and "suppress(ImportError)" in ast.unparse(node.items[0])):
            guarded |= {id(below) for statement in node.body for below in ast.walk(statement)}
        elif isinstance(node, ast.If | ast.IfExp) and "hasattr(os, " in ast.unparse(node.test):
            body = node.body if isinstance(node.body, list) else [node.body]
            guarded |= {id(below) for statement in body for below in ast.walk(statement)}
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.split(".")[0] in POSIX)
        elif isinstance(node, ast.ImportFrom) and node.module in POSIX:
            yield node.module
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os" and node.attr in POSIX_OS:
            yield f"os.{node.attr}"


def test_nothing_needs_posix():
    for path in FILES:
        assert not list(unguarded(tree(path))), path
    for bad in ("import fcntl", "def f():\n    from resource import getrusage", "import os\nos.getuid()"):
        assert list(unguarded(ast.parse(bad))), bad


def private_of_torch(tree):
    """Attributes of torch that begin with an underscore, and operators called by their registered names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            names = ast.unparse(node).split(".")
            if names[0] == "torch" and (names[1] == "ops" or (names[-1].startswith("_") and names[-1][:2] != "__")):
                yield ".".join(names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            private = [name for name in node.module.split(".") if name.startswith("_")]
            yield from private + [one.name for one in node.names if one.name.startswith("_")]


def test_private_operators_of_torch_stand_in_two_modules():
    """These try them before they use them, and have a public way beside them."""
    found = {path.relative_to(ROOT).as_posix() for path in FILES if list(private_of_torch(tree(path)))}
    assert found == {"encoders/fast/products.py", "neighbors/screened.py"}
    for bad in ("torch.ops.aten.relu(x)", "torch._VF.gru", "torch.nn.modules._f", "from torch._C import a"):
        assert list(private_of_torch(ast.parse(bad))), bad


def test_no_imports_form_a_circle():
    """Those within functions count too; what comes through a package's door counts as its file."""
    files = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES
    }
    for door in ROOT.rglob("__init__.pyi"):
        package = ".".join(door.parent.relative_to(ROOT.parent).parts)
        for node in ast.parse(door.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                files |= {f"{package}.{one.name}": files[f"{package}.{node.module}"] for one in node.names}
    imports = {path: {files[one] for one in imported(path, files)} - {path} for path in files.values()}
    free = set()  # of files that import none but free ones
    while ready := {path for path, others in imports.items() if path not in free and others <= free}:
        free |= ready
    assert set(imports) == free


def imported(path, files):
    """The files of vsehub that a file imports, those for type checkers left out."""
    todo = [tree(path)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module in files:
            full = [f"{node.module}.{name.name}" for name in node.names]
            yield from (one if one in files else node.module for one in full)


def test_every_package_is_in_the_picture():
    assert {place(path)[0] for path in FILES} == set(ALLOWED) | {"__init__"}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "from vsehub.losses import HAL\nfrom vsehub.criteria import CSLS\nfrom vsehub import load\n"
            "import vsehub.encoders.pretrained.texts, vsehub.data.text.vocabulary\n"
            "import vsehub.serving.databases.collection, vsehub.ranking.ray",
            (
                *("pytorch_lightning", "hydra", "omegaconf", "faiss", "matplotlib", "pandas", "transformers"),
                *("tokenizers", "pymilvus", "lancedb", "qdrant_client", "psycopg", "grpc", "ray"),
            ),
        ),
        ("import vsehub.report.build", ("torch", "pytorch_lightning", "hydra")),
        (
            "import sys; sys.argv = ['vsehub', '--help']; import vsehub.cli.main; vsehub.cli.main.main()",
            ("torch", "hydra", "omegaconf", "numpy"),
        ),
    ],
    ids=["library", "report", "help"],
)
def test_what_is_not_imported(code, absent):
    ask = f"{code}\nimport sys\nprint(sorted(set({absent!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_correcting_embeddings_needs_no_training_stack(tmp_path):
    """A missing file is reported without torch; measuring needs torch, and matplotlib is for the output."""
    ask = f"""
import os, sys
import numpy as np
from vsehub.cli import main

def loaded(*names):
    print(sorted(set(names) & set(sys.modules)))

def run(*arguments):
    sys.argv = ["vsehub", *arguments, "items=m.npy"]
    main.main()

os.chdir({str(tmp_path)!r})
np.save("m.npy", np.eye(4, dtype=np.float32))
for command in ("rerank", "diagnose"):
    try:
        run(command, "queries=nope.npy")
    except SystemExit as end:
        print(end.code)
loaded("torch", "pyarrow", "faiss", {HEAVY})
import types
page = types.SimpleNamespace(write_embeddings_report=lambda *_: loaded("torch", "faiss", "matplotlib", {HEAVY}))
sys.modules["vsehub.report.pages.embeddings"] = page
run("diagnose", "queries=m.npy", "k=2")
run("rerank", "queries=m.npy", "k=2")
"""
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    printed = [line for line in done.stdout.splitlines() if line[0] in "[2"]
    assert printed == ["2", "2", "[]", "['torch']", "['torch']"]


def test_no_export_of_a_door_has_the_name_of_a_file_beside_it():
    """Else `from vsehub.x import name` would give the file's module once anything had imported it."""
    doors = [path for path in ROOT.rglob("__init__.pyi")]
    assert len(doors) > 5
    for door in doors:
        package = import_module(".".join(door.parent.relative_to(ROOT.parent).parts))
        beside = {path.stem for path in door.parent.iterdir()}
        assert not beside & set(package.__all__), door
        for name in package.__all__:  # every export is there
            assert getattr(package, name).__name__ == name


def test_each_class_name_is_given_once():
    found: dict[str, list[str]] = {}
    for file in FILES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}
