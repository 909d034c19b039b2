from .wandb import wandb_logger as wandb_logger
