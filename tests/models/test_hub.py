"""Models loaded from the Hugging Face hub, whose client is replaced by a folder."""

import shutil
from unittest.mock import create_autospec

import pytest

import vsehub
from vsehub.checks import InputError

hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: pip install 'vsehub[hub]'")


def test_a_model_is_loaded_by_its_name_and_refusals_are_one_line_without_secrets(tmp_path, monkeypatch, trained):
    shutil.copy(trained / "checkpoints" / "best.safetensors", tmp_path / "model.safetensors")

    def download(repo, name, *, revision=None):
        if (repo, revision) not in (("me/scenes", None), ("me/scenes", "5a" * 20)):
            raise ValueError(f"401\n for hf_badtokenbadtoken at https://me:secret@hub/{repo}")
        return str(tmp_path / name)

    monkeypatch.setattr(hub, "hf_hub_download", create_autospec(hub.hf_hub_download, side_effect=download))
    sha256 = vsehub.load(trained / "checkpoints" / "best.safetensors").sha256
    for address in ("hf://me/scenes", f"hf://me/scenes@{'5a' * 20}"):
        assert vsehub.load(address).sha256 == sha256
    for address in ("hf://me/scenes@v9", "hf://../..", "hf://me/scenes@../x"):
        with pytest.raises(InputError, match="checkpoint") as refused:
            vsehub.load(address)
        assert not [secret for secret in ("\n", "badtoken", "secret") if secret in str(refused.value)]
