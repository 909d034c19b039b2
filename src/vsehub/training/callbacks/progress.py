"""The progress bar of a training."""

from typing import Any

from pytorch_lightning.callbacks import TQDMProgressBar


class ProgressBar(TQDMProgressBar):
    """Lightning's bar without the number of the loggers' version, which says nothing of the training."""

    def get_metrics(self, trainer: Any, module: Any) -> dict[str, Any]:
        """What the bar shows after the number of batches."""
        metrics = super().get_metrics(trainer, module)
        return {name: value for name, value in metrics.items() if name != "v_num"}
