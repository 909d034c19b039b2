"""Imports point down, heavy ones stay where they belong, and what must start fast does."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "vsehub"
FILES = sorted(ROOT.rglob("*.py"))
L0 = {"types", "checks", "components", "files", "outputs", "records", "sets"}
L1 = {"similarities", "losses", "encoders", "metrics"}
L2 = {
    "neighbors": set(),
    "criteria": {"neighbors"},
    "data": set(),
    "evaluation": {"criteria", "data", "neighbors"},
    "extraction": {"data"},
    "report": set(),
    "retrieval": {"criteria", "data", "metrics", "neighbors"},
}
ALLOWED = (
    {name: set() for name in L0}
    | {"files": {"checks"}, "sets": {"checks"}, "types": {"sets"}, "components": {"checks"}, "records": {"checks"}}
    | {"outputs": {"checks", "files"}}
    | {name: L0 for name in L1}
    | {name: L0 | L1 | siblings for name, siblings in L2.items()}
    | {"data": L0, "training": L0 | L1 | set(L2), "cli": L0 | L1 | set(L2) | {"training"}}
)
OUTSIDE = {
    "hydra": {"cli"},
    "omegaconf": {"cli"},
    "pytorch_lightning": {"training"},
    "lightning": set(),
    "faiss": {"neighbors/faiss_index.py"},
    "matplotlib": {"report", "training/wandb_logger.py"},
    "pandas": {"report"},
    "jinja2": {"report"},
    "wandb": {"training/loggers.py", "training/wandb_account.py"},
    "wandb_workspaces": {"training/wandb_view.py"},
    "transformers": {"encoders/text_pretrained.py", "data/subwords.py"},
    "tokenizers": {"data/subwords.py"},
    "torchvision": {"encoders/vision_models.py"},
    "timm": {"encoders/vision_models.py"},
    "safetensors": {
        "data/stored_safetensors.py",
        "encoders/weight_file.py",
        "cli/encoded_cache.py",
        "evaluation/checkpoint.py",
    },
}


def modules(path):
    """Every module that a file imports, in functions too; `from vsehub import x` counts as vsehub.x."""
    for node in ast.walk(ast.parse(path.read_text())):
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: place(path)[1])
def test_imports_point_down(path):
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
            assert OUTSIDE[top] & {package, name}, f"{name} imports {module}"
        if package in L1:
            here = {"torch", "numpy", "vsehub"} | {one for one, files in OUTSIDE.items() if name in files}
            assert top in here or top in sys.stdlib_module_names, f"{name} imports {module}"
        if package == "report":
            assert top != "torch", f"{name} imports {module}"


def test_every_package_is_in_the_picture():
    assert {place(path)[0] for path in FILES} == set(ALLOWED) | {"__init__"}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "import vsehub.losses.hal, vsehub.criteria.csls, vsehub.evaluation.evaluate\n"
            "import vsehub.encoders.text_pretrained, vsehub.data.words",
            ("pytorch_lightning", "hydra", "omegaconf", "faiss", "matplotlib", "pandas", "transformers", "tokenizers"),
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
