"""Train the parts of mine.py with your own Trainer, then measure with plain tensors: python train_mine.py."""

from functools import partial

import pytorch_lightning as pl
import torch
from mine import Distance, Gap, Patches, Quarters

from vsehub.criteria import CSLS, NearestNeighbor
from vsehub.encoders import TextGRU
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate
from vsehub.losses import HAL
from vsehub.metrics import hubness, recall_metrics
from vsehub.models.encode import encode_split
from vsehub.training.callbacks import BankCallback, RetrievalCallback
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule

pl.seed_everything(0, verbose=False)
data = RetrievalDataModule(Quarters(), batch_size=50, min_count=1)  # 1: keeps words that occur once
data.setup()


def parts():
    return {
        "image_encoder": Patches(data.splits["train"].images.shape[1:], dim=32),
        "text_encoder": TextGRU(len(data.vocabulary), dim=32, word_dim=16),
        "similarity": Distance(),
        "loss": HAL(gamma=30, epsilon=0.5),
        "optimizer": partial(torch.optim.Adam, lr=0.01),
        "scheduler": partial(torch.optim.lr_scheduler.StepLR, step_size=10),
    }


module = RetrievalModule(**parts())
trainer = pl.Trainer(
    max_epochs=15,
    accelerator="cpu",
    callbacks=[RetrievalCallback(), BankCallback(fraction=0.5), Gap()],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    num_sanity_val_steps=0,
)
trainer.fit(module, datamodule=data)
trainer.save_checkpoint("mine.ckpt")
module = RetrievalModule.load_from_checkpoint("mine.ckpt", **parts()).eval()
encoded = encode_split(module.image_encoder, module.text_encoder, *data.load("test"))
for name, criterion in {"nns": NearestNeighbor(), "csls": CSLS(k=10)}.items():
    metrics = evaluate(encoded, module.similarity, criterion, Protocol("single")).metrics
    print(f"{name}: rsum {metrics['rsum']:.1f}, hs_sum {metrics['hubness/hs_sum']:.2f}")

scores = module.similarity(encoded.images, encoded.texts)  # (I, T); what follows needs plain tensors only
positives = torch.eye(len(scores), dtype=torch.bool)  # the pairs; here image i has caption i
print(f"plain: rsum {recall_metrics(scores, positives)['rsum']:.1f}, hs_sum {hubness(scores)['hs_sum']:.2f}")
corrected = CSLS(k=10).rescore(scores.T, scores.T).T  # texts search images: queries are rows, here their own reference
print(f"corrected: R@1 {recall_metrics(corrected, positives)['t2i/r1']:.1f}")
