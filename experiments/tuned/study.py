"""The grid under tuned recipes: the losses of `losses`, each with its own recipe, under every criterion of the grid.

python -m experiments tuned train DATA
python -m experiments tuned measure RUNS... --out MEASURED
python -m experiments tuned collect MEASURED
python -m experiments tuned render
"""

from dataclasses import replace

from experiments.grid import page
from experiments.grid.study import measure, write_tables
from experiments.losses import study as losses
from experiments.study import Study

TUNED = losses.STUDY.trainings["results"]

STUDY = Study(
    __file__,
    trainings={"results": replace(TUNED, cases=lambda: TUNED.chosen(losses.LOSSES), seeds=range(3), own_seeds={})},
    render=page.render,
    verbs={"measure": measure, "collect": write_tables},
)
