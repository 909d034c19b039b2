"""Imports point down, heavy ones stay where they belong, and what must start fast does."""

import ast
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1] / "src" / "vsehub"
FILES = sorted(ROOT.rglob("*.py"))
DOORS = list(ROOT.rglob("__init__.pyi"))
L0 = {"types", "checks", "components", "extras", "io", "machine", "positives", "recipes", "sets"}
L1 = {"similarities", "losses", "encoders", "metrics", "neighbors"}
L2 = {
    "criteria": set(),
    "data": set(),
    "models": {"criteria", "data"},
    "evaluation": {"criteria", "data", "models"},
    "extraction": {"data"},
    "report": {"data", "evaluation"},  # for types and pictures; test_early_refusals.py tests that it loads no torch
    "ranking": {"criteria", "data"},
    "serving": {"criteria", "data"},
}
ALLOWED = (
    {name: {"checks", "extras", "io"} for name in L0}
    | {"checks": set(), "extras": {"checks"}, "types": {"checks", "components", "sets"}}
    | {name: L0 for name in L1}
    | {"metrics": L0 | {"neighbors"}}
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
        "models/hub.py",
    },
    "peft": {"encoders/pretrained/joint/towers.py"},
    "torchvision": {"encoders/pretrained/networks.py"},
    "timm": {"encoders/pretrained/networks.py"},
    "lazy_loader": {"__init__.py"},
    "safetensors": {
        "cli/adapt.py",
        "data/vectors/readers.py",
        "encoders/pretrained/networks.py",
        "models/trained.py",
        "models/checkpoint.py",
        "serving/estimator.py",
    },
}


@cache
def tree(path):
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def modules(path):
    """Every module that a file imports, in functions and by `extras.package` too; `from vsehub import x`: vsehub.x."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "package":
            yield from (argument.value for argument in node.args[2:] if isinstance(argument, ast.Constant))
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            below = node.module == "vsehub"
            yield from [f"vsehub.{name.name}" for name in node.names] if below else [node.module]


def test_imports_point_down():
    rooms = set()
    for path in FILES:
        relative = path.relative_to(ROOT)
        package, name = relative.parts[0].removesuffix(".py"), relative.as_posix()
        rooms.add(package)
        for module in modules(path):
            if module.startswith("vsehub."):
                other = module.split(".")[1]
                # The package's own name and version stand above all layers.
                if other not in ("__version__", package) and package != "__init__":
                    assert other in ALLOWED[package], f"{name} imports {module}"
                continue
            top = module.split(".")[0]
            known = {"torch", "numpy", *sys.stdlib_module_names, *(["scipy"] if name == "encoders/cca.py" else [])}
            allowed = OUTSIDE.get(top, {package} if package not in L1 or top in known else set())
            assert allowed & {package, name, path.name}, f"{name} imports {module}"
            assert (package, top) != ("report", "torch"), name
    assert rooms == set(ALLOWED) | {"__init__"}


@cache
def import_graph():
    """Path of a file -> paths that it imports, within functions too; a package's door counts as the file behind it."""
    files = {
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES
    }
    for door in DOORS:
        package = ".".join(door.parent.relative_to(ROOT.parent).parts)
        for node in ast.parse(door.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                files |= {f"{package}.{name.name}": files[f"{package}.{node.module}"] for name in node.names}
    return {path: {files[name] for name in imported(path, files)} - {path} for path in files.values()}


def test_no_imports_form_a_circle():
    imports, free = import_graph(), set()  # of files that import none but free ones
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
            yield from (module if module in files else node.module for module in full)


LIBRARY = """
import sys
def absent(*names):
    assert not set(names) & set(sys.modules), set(names) & set(sys.modules)
from vsehub.losses import HAL
from vsehub.criteria import CSLS
from vsehub import load
import vsehub.encoders.pretrained.texts, vsehub.data.text.vocabulary
import vsehub.serving.databases.collection, vsehub.ranking.compare
absent("hydra", "omegaconf", "pandas", "tokenizers", "pymilvus", "lancedb", "qdrant_client", "psycopg", "grpc")
sys.argv = "vsehub rerank queries=m.npy items=m.npy k=2".split()
import vsehub.cli.main
vsehub.cli.main.main()
absent("pytorch_lightning", "torchmetrics", "torchvision", "transformers", "timm", "wandb", "torch._dynamo")
absent("faiss", "matplotlib", "pandas", "scipy")
"""


def test_what_is_not_imported(tmp_path):
    """By the library and by `vsehub rerank`; for help and refusals see test_early_refusals.py."""
    np.save(tmp_path / "m.npy", np.eye(4, dtype=np.float32))
    done = subprocess.run([sys.executable, "-c", LIBRARY], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_no_export_of_a_door_has_the_name_of_a_file_beside_it():
    """Else `from vsehub.x import name` would give the file's module once anything had imported it."""
    for door in DOORS:
        package = import_module(".".join(door.parent.relative_to(ROOT.parent).parts))
        assert not {path.stem for path in door.parent.iterdir()} & set(package.__all__), door
        assert all(getattr(package, name).__name__ == name for name in package.__all__), door
