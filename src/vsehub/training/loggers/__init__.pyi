from .csv import WholeCSVLogger as WholeCSVLogger
from .wandb import wandb_logger as wandb_logger
