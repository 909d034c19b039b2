"""Optional packages: what is said of one that is missing, half installed or of another version."""

import importlib.metadata
import sys
import types

import pytest

from vsehub import extras
from vsehub.checks import InputError
from vsehub.extras import package, require_packages


def test_a_missing_package_is_named_with_the_line_that_installs_it():
    with pytest.raises(InputError, match=r"^format=onnx needs absent_package, not installed here: pip install 'vs"):
        require_packages("format=onnx", "export", "absent_package", "torch")


def test_all_that_is_missing_is_named_at_once():
    with pytest.raises(InputError, match="needs absent_one and absent_two, not installed"):
        require_packages("it", "train", "absent_one", "torch", "absent_two")


def test_a_package_that_is_recorded_without_its_files_is_installed_again(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_lightning", None)
    with pytest.raises(InputError, match="not wholly installed here: pip install --force-reinstall 'vsehub"):
        require_packages("vsehub train", "train", "pytorch_lightning")


@pytest.mark.parametrize(("found", "taken"), [("2.5.3", False), ("2.6.0", True), ("2.9rc1", True), ("3.0", False)])
def test_a_version_that_is_not_declared_is_refused(monkeypatch, found, taken):
    monkeypatch.setattr(extras, "_version", lambda module: found)
    if taken:
        require_packages("vsehub train", "train", "pytorch_lightning")
        return
    with pytest.raises(InputError, match=rf"pytorch_lightning\S*2.6\S*, and {found} is installed: pip install --up"):
        require_packages("vsehub train", "train", "pytorch_lightning")


def test_a_package_without_a_record_is_taken_as_it_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "by_hand", types.ModuleType("by_hand"))
    sys.modules["by_hand"].__spec__ = importlib.machinery.ModuleSpec("by_hand", None)
    assert package("it", "train", "by_hand") is sys.modules["by_hand"]


def test_a_package_that_cannot_be_imported_says_why(tmp_path, monkeypatch):
    (tmp_path / "broken_one.py").write_text("raise ImportError('libfoo.so is missing')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"cannot be imported \(libfoo.so is missing\): pip install --force-reinstall"):
        package("it", "train", "broken_one")


def test_versions_are_those_that_are_declared():
    declared = {line.split(";")[0].strip() for line in importlib.metadata.requires("vsehub")}
    assert str(extras._wanted("train")["pytorch-lightning"]).split(";")[0] in declared
    assert "pytorch-lightning" not in extras._wanted("cpu")
