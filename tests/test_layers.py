"""Imports point down, heavy ones stay where they belong, and what must start fast does."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "vsehub"
FILES = sorted(ROOT.rglob("*.py"))
L0 = {"types", "checks", "components", "io", "recipes", "sets"}
L1 = {"similarities", "losses", "encoders", "metrics"}
L2 = {
    "neighbors": set(),
    "criteria": {"neighbors"},
    "data": set(),
    "evaluation": {"criteria", "data", "neighbors"},
    "extraction": {"data"},
    "report": set(),
    "rerank": {"criteria", "data", "neighbors"},
    "serving": {"criteria", "neighbors"},
}
ALLOWED = (
    {name: {"checks", "io"} for name in L0}
    | {"checks": set(), "types": {"checks", "components", "sets"}}
    | {name: L0 for name in L1}
    | {name: L0 | L1 | siblings for name, siblings in L2.items()}
    | {"data": L0, "training": L0 | L1 | set(L2), "cli": L0 | L1 | set(L2) | {"training"}}
)
# Who may import a library: packages or files.
OUTSIDE = {
    "hydra": {"cli"},
    "omegaconf": {"cli"},
    "pytorch_lightning": {"training"},
    "lightning": set(),
    "faiss": {"neighbors/faiss.py"},
    "matplotlib": {"report", "training/loggers/wandb.py"},
    "pandas": {"report"},
    "jinja2": {"report"},
    "wandb": {"training/loggers/wandb.py"},
    "wandb_workspaces": {"training/loggers/wandb_view.py"},
    "transformers": {"encoders/pretrained/texts.py", "data/text/vocabulary.py"},
    "tokenizers": {"data/text/vocabulary.py"},
    "torchvision": {"encoders/pretrained/networks.py"},
    "timm": {"encoders/pretrained/networks.py"},
    "lazy_loader": {"__init__.py"},
    "safetensors": {
        "data/vectors/formats.py",
        "encoders/pretrained/networks.py",
        "cli/split_search.py",
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
        if isinstance(node, ast.Try) and any("ImportError" in ast.unparse(one.type or node) for one in node.handlers):
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
        assert not list(unguarded(ast.parse(path.read_text(encoding="utf-8")))), path
    for bad in ("import fcntl", "def f():\n    from resource import getrusage", "import os\nos.getuid()"):
        assert list(unguarded(ast.parse(bad))), bad


def test_every_package_is_in_the_picture():
    assert {place(path)[0] for path in FILES} == set(ALLOWED) | {"__init__"}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (
            "from vsehub.losses import HAL\nfrom vsehub.criteria import CSLS\nimport vsehub.evaluation.evaluate\n"
            "import vsehub.encoders.pretrained.texts, vsehub.data.text.vocabulary",
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
