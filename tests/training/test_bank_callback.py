"""The bank's refill, in the epochs of a training: against loops over the sample's pairs, encoded one by one."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from setting_files import WORDS

from vsehub.training.callbacks import BankCallback

CAPTIONS, K = 240, 10  # five an image; neighbours


def encoded_alone(module, split, table, pairs):
    """Unit vectors of the images and of the captions of some pairs, encoded one by one."""
    was_training = module.training
    module.eval()
    images, texts = [], []
    with torch.no_grad():
        for image, caption in pairs:
            images.append(module.image_encoder(torch.from_numpy(np.array(split.images[image : image + 1])))[0])
            texts.append(module.text_encoder(*table.batch(np.array([caption])))[0])
    module.train(was_training)
    return F.normalize(torch.stack(images), dim=1), F.normalize(torch.stack(texts), dim=1)


def nearest(query, entries, allowed):
    """The K largest similarities to the entries that are allowed, by a loop."""
    products = [float(query @ entry) for entry, is_allowed in zip(entries, allowed, strict=True) if is_allowed]
    return sorted(products, reverse=True)[:K]


@pytest.mark.parametrize("exclude", ["image", "batch_captions"])
def test_each_epoch_searches_its_own_sample_by_its_own_weights(
    run_here, features, undrawn, tmp_path, monkeypatch, exclude
):
    random = np.random.default_rng(0)
    np.save(tmp_path / "pre" / "train_ims.npy", random.normal(size=(CAPTIONS // 5, 6)).astype(np.float32))
    captions = [" ".join(random.choice(WORDS, 3 + row % 3)) for row in range(CAPTIONS)]
    (tmp_path / "pre" / "train_caps.txt").write_text("\n".join(captions) + "\n")
    original, samples = BankCallback.on_train_epoch_start, {}

    def compared(callback, trainer, module):
        original(callback, trainer, module)
        epoch, bank = trainer.current_epoch, module.bank
        if epoch == 0:
            assert len(bank) == 0
            return
        split, table = trainer.datamodule.load("train")
        pairs = split.pairs
        assert pairs.tolist() == [[caption // 5, caption] for caption in range(CAPTIONS)]
        sample = pairs[callback.sample(len(pairs), epoch, 0)]
        samples[epoch] = {caption for _, caption in sample.tolist()}
        assert len(bank) == len(samples[epoch]) == 0.25 * CAPTIONS

        entries = encoded_alone(module, split, table, sample)
        rows = pairs[epoch::23]
        queries = encoded_alone(module, split, table, rows)
        stats = bank.query(*queries, *torch.from_numpy(rows).unbind(dim=1))
        for row, (image, _) in enumerate(rows.tolist()):
            if exclude == "image":
                allowed = [entry != image for entry, _ in sample.tolist()]
            else:
                allowed = [entry not in rows[:, 1] for _, entry in sample.tolist()]
            assert stats[0][row].tolist() == pytest.approx(nearest(queries[0][row], entries[1], allowed), abs=1e-4)
            assert stats[1][row].tolist() == pytest.approx(nearest(queries[1][row], entries[0], allowed), abs=1e-4)

    monkeypatch.setattr(BankCallback, "on_train_epoch_start", compared)
    settings = ("bank.fraction=0.25", f"bank.exclude={exclude}", "image_encoder.dropout=0.5", "optimizer.lr=0.01")
    run_here("train", *features, *settings, "trainer.max_epochs=3", "hydra.run.dir=run")
    assert samples.keys() == {1, 2}
    # Two samples of a quarter have a sixteenth of the pairs in common, here 15.
    assert 6 < len(samples[1] & samples[2]) < 24


def test_the_sample_is_drawn_by_seed_and_epoch():
    bank, samples = BankCallback(fraction=0.1), {}
    for epoch in range(3):
        samples[0, epoch], samples[1, epoch] = bank.sample(200, epoch, 0), bank.sample(200, epoch, 1)
        assert np.array_equal(samples[0, epoch], BankCallback(fraction=0.1).sample(200, epoch, 0))
        assert len(set(samples[0, epoch].tolist())) == 20
    assert len({tuple(sample.tolist()) for sample in samples.values()}) == 6
    covered = {row for epoch in range(100) for row in bank.sample(200, epoch, 0).tolist()}
    assert covered == set(range(200))
