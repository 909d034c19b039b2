"""Models pushed to and loaded from the Hugging Face hub, whose client is replaced by a folder."""

import json
from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest

import vsehub
from vsehub.checks import InputError

hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: pip install 'vsehub[hub]'")
TOKEN = "hf_goodtokengood"


@pytest.fixture
def pushed(tmp_path, monkeypatch):
    """A hub in a folder, USER/NAME/FILE; the client's own signatures are kept."""

    api_class, own_download = hub.HfApi, hub.hf_hub_download

    def client(token=None):
        api = create_autospec(api_class, instance=True)
        api.create_repo.side_effect = lambda repo, **settings: (tmp_path / repo).mkdir(parents=True, exist_ok=True)
        api.list_repo_files.side_effect = lambda repo: [path.name for path in (tmp_path / repo).iterdir()]

        def commit(repo, operations, commit_message):
            if token != TOKEN:
                raise ValueError(f"401\n for {token} at https://me:secret@hub/api")
            for operation in operations:
                content = operation.path_or_fileobj
                content = content if isinstance(content, bytes) else open(content, "rb").read()  # noqa: SIM115
                (tmp_path / repo / operation.path_in_repo).write_bytes(content)
            return SimpleNamespace(oid="5a" * 20)

        api.create_commit.side_effect = commit
        return api

    def download(repo, name, *, revision=None):
        if revision not in (None, "5a" * 20):
            raise ValueError(f"no such revision: {revision}")
        return str(tmp_path / repo / name)

    monkeypatch.setattr(hub, "HfApi", client)
    monkeypatch.setattr(hub, "hf_hub_download", create_autospec(own_download, side_effect=download))
    return tmp_path


def test_a_pushed_model_comes_back_with_its_card(pushed, trained):
    model = vsehub.load(trained / "checkpoints" / "best.safetensors")
    address = model.push_to_hub("me/scenes", token=TOKEN)
    assert [vsehub.load(path).sha256 for path in (address, "hf://me/scenes")] == [model.sha256] * 2
    with pytest.raises(InputError, match="overwrite=True"):
        model.push_to_hub("me/scenes", token=TOKEN)
    assert model.push_to_hub("me/scenes", token=TOKEN, overwrite=True) == address
    card, record = (pushed / "me/scenes/README.md").read_text(), json.loads((trained / "run.json").read_text())
    assert f"| seed | {record['seed']} |" in card
    assert f"| rsum | {record['metrics']['test/rsum']:.2f} |" in card
    assert not [text for text in (str(trained), TOKEN) if text in card]


def test_refusals_are_one_line_without_secrets(pushed, trained):
    model = vsehub.load(trained / "checkpoints" / "best.safetensors")
    with pytest.raises(InputError, match="push_to_hub: me/other: ValueError") as refused:
        model.push_to_hub("me/other", token="hf_badtokenbadtoken")
    assert not [secret for secret in ("\n", "badtoken", "secret") if secret in str(refused.value)]
    for address in ("hf://me/scenes@v9", "hf://../..", "hf://me/scenes@../x"):
        with pytest.raises(InputError, match="checkpoint"):
            vsehub.load(address)
