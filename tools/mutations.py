"""Eighty one-line breaks of important behaviour; the tests of that behaviour must notice each.

python tools/mutations.py [--only hal bank] [--jobs 2]

A mutation is (file below src/vsehub, old text, new text, tests). The old text must stand in the file exactly once. Each
mutation is made in a copy of src/, and its tests run against the copy. Exit status 1 where one survives.
"""

import argparse
import contextlib
import io
import itertools
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

HAL = "losses/test_hal.py losses/test_loops.py losses/test_golden_losses.py"
OCCURRENCES = "metrics/test_occurrences.py metrics/test_ranks.py"
SETTINGS = "commands/test_settings.py::test_each_setting_does_what_the_table_says"
MUTATIONS = [
    (
        "losses/hal.py",
        "negatives - reward,",
        "negatives + reward,",
        HAL,
    ),
    (
        "losses/hal.py",
        "self.alpha * (paired - self.epsilon1)",
        "self.alpha * paired",
        HAL,
    ),
    (
        "losses/hal.py",
        "crowd = torch.logaddexp(image_crowd[:, None], text_crowd[None, :])",
        "crowd = torch.logaddexp(image_crowd[None, :], text_crowd[:, None])",
        HAL,
    ),
    (
        "losses/hal.py",
        "(rows + columns).mean()",
        "(rows + columns).sum()",
        HAL,
    ),
    (
        "losses/hal.py",
        "return stats[:, :k]",
        "return stats[:, -k:]",
        HAL,
    ),
    ("losses/hinge.py", "text_to_image.topk(k, dim=0)", "text_to_image.topk(k, dim=1)", "losses/test_loops.py"),
    ("losses/hinge.py", "negatives - paired[None, :])", "negatives - paired[:, None])", "losses/test_loops.py"),
    ("losses/base.py", "exponents.logsumexp(dim=0)", "exponents.logsumexp(dim=1)", "losses/test_log_sums.py"),
    ("losses/base.py", "fill_excluded(exponents * scale, excluded)", "exponents * scale", "losses/test_log_sums.py"),
    (
        "neighbors/bank.py",
        "self._image_ids[near_images] == image_ids[:, None]",
        "self._image_ids[near_images] < 0",
        "neighbors/test_bank.py neighbors/test_scored_index.py training/test_bank_callback.py",
    ),
    (
        "neighbors/bank.py",
        "depth = min(self.k + most_excluded, len(self))",
        "depth = min(self.k, len(self))",
        "neighbors/test_bank.py neighbors/test_scored_index.py training/test_bank_callback.py",
    ),
    (
        "neighbors/bank.py",
        "excluded.byte().argsort",
        "(~excluded).byte().argsort",
        "neighbors/test_bank.py neighbors/test_scored_index.py training/test_bank_callback.py",
    ),
    (
        "neighbors/bank.py",
        "max(K_LEAST, round(K_SHARE * size))",
        "K_LEAST",
        "neighbors/test_bank.py neighbors/test_scored_index.py training/test_bank_callback.py",
    ),
    (
        "positives.py",
        "self._keys[position] == keys",
        "self._keys[position] >= keys",
        "test_positives.py metrics/test_ranks.py",
    ),
    ("criteria/csls.py", "    scale = 2.0", "    scale = 1.0", "criteria/test_formulas.py"),
    (
        "criteria/csls.py",
        "return nearest.mean(dim=1)",
        "return nearest.sum(dim=1)",
        "criteria/test_formulas.py",
    ),
    (
        "criteria/inverted_softmax.py",
        "rest = logits.scatter(0, at, -torch.inf)",
        "rest = logits",
        "criteria/test_formulas.py",
    ),
    ("criteria/nnn.py", "return self.weight * mean_of_nearest", "return mean_of_nearest", "criteria/test_formulas.py"),
    (
        "criteria/qb_norm.py",
        "scores - query_terms[1] * item_terms[0]",
        "scores - item_terms[0]",
        "criteria/test_formulas.py",
    ),
    ("criteria/sinkhorn.py", " - mean.T @ total", "", "criteria/test_formulas.py"),
    ("criteria/sinkhorn.py", "for _ in range(self.rounds):", "for _ in range(1):", "criteria/test_formulas.py"),
    (
        "criteria/mutual_proximity.py",
        "log_ndtr(of_query) + torch",
        "log_ndtr(of_item) + torch",
        "criteria/test_formulas.py",
    ),
    ("criteria/choose.py", "difference[best].mean() > error", "difference[best].mean() > 0", "ranking/test_choose.py"),
    (
        "criteria/choose.py",
        "applied[choose_row(values[:, fold_of_query != number])]",
        "applied[choose_row(values)]",
        "commands/test_chosen_on_other_queries.py",
    ),
    (
        "metrics/ranks.py",
        "- equal_hits + 1) * (counts > 0)",
        "- equal_hits) * (counts > 0)",
        "metrics/test_ranks.py metrics/test_golden_metrics.py",
    ),
    (
        "metrics/ranks.py",
        "len(ranks) // 2]) // 2",
        "len(ranks) // 2]) / 2",
        "metrics/test_ranks.py metrics/test_golden_metrics.py",
    ),
    (
        "metrics/ranks.py",
        '"t2i", scores.T, positives.T',
        '"t2i", scores, positives',
        "metrics/test_ranks.py metrics/test_golden_metrics.py",
    ),
    (
        "metrics/ranks.py",
        "inside = (positive_scores >= cut) & (order <= counts)",
        "inside = order <= counts",
        "metrics/test_relevance.py",
    ),
    ("metrics/occurrences.py", "variance.pow(1.5)", "variance", OCCURRENCES),
    ("metrics/occurrences.py", "n >= 2 * k", "n > 2 * k", OCCURRENCES),
    (
        "metrics/occurrences.py",
        "frequency[n >= least]",
        "frequency[n > least]",
        OCCURRENCES,
    ),
    (
        "evaluation/protocols.py",
        "slice(fold * size, (fold + 1) * size)",
        "slice(0, size)",
        "evaluation/test_evaluate.py models/test_cache.py",
    ),
    (
        "evaluation/protocols.py",
        '"c2": (1000, 5)',
        '"c2": (5000, 1)',
        "evaluation/test_evaluate.py models/test_cache.py",
    ),
    (
        "evaluation/tune.py",
        "max(tried, key=lambda pair: pair[1])",
        "min(tried, key=lambda pair: pair[1])",
        "evaluation/test_tune.py",
    ),
    ("evaluation/tune.py", "chosen[k] = max(sums,", "chosen[k] = min(sums,", "evaluation/test_tune.py"),
    (
        "evaluation/scores.py",
        "(images, texts) if reference is split else",
        "(images, texts) if True else",
        "evaluation/test_evaluate.py evaluation/test_tune.py",
    ),
    (
        "training/batches.py",
        "random = np.random.default_rng([self.seed, self.epoch])",
        "random = np.random.default_rng([self.seed])",
        "training/test_batches.py",
    ),
    (
        "training/batches.py",
        "ends = (column == 0) | (column == lengths[:, None] - 1)",
        "ends = column == 0",
        "training/test_batches.py",
    ),
    (
        "training/gather.py",
        "_reduce_scatter(share, gradient.contiguous())",
        "share.copy_(gradient[: len(share)])",
        "training/test_gather.py",
    ),
    ("training/gather.py", "rows // parts + (part < rows % parts)", "rows // parts", "test_doctests.py"),
    (
        "training/callbacks/bank.py",
        "default_rng([seed, epoch, 1])",
        "default_rng([seed, 1])",
        "training/test_bank_callback.py",
    ),
    (
        "training/callbacks/bank.py",
        "if trainer.current_epoch < self.first_epoch:",
        "if False:",
        "training/test_bank_callback.py",
    ),
    (
        "training/callbacks/average.py",
        "min(self.decay, (1 + self.steps) / (10 + self.steps))",
        "0.0",
        "training/test_average.py",
    ),
    (
        "training/callbacks/collapse.py",
        "step - self.since < self.patience",
        "step < self.patience",
        "training/test_collapse.py",
    ),
    (
        "data/noise.py",
        "order[chosen] = rng.permutation(chosen)",
        "order = rng.permutation(order)",
        "data/test_noise.py",
    ),
    ("data/noise.py", 'if split != "train":', 'if split == "test":', "data/test_noise.py"),
    (
        "data/sources.py",
        "digest.update(part)",
        "digest.update(part[:1])",
        "data/test_contents.py data/test_precomp.py",
    ),
    (
        "serving/index.py",
        "return ((mean - bias) / scale).float(), mean",
        "return (mean - bias).float(), mean",
        "serving/test_index.py serving/test_estimator.py",
    ),
    (
        "serving/index.py",
        "scale * products - mean_bias if corrected",
        "scale * products + mean_bias if corrected",
        "serving/test_index.py serving/test_estimator.py",
    ),
    (
        "components.py",
        "self.any_class or target in self.trust or target in self._targets(group),",
        "True,",
        "test_components.py commands/test_security.py",
    ),
    # The wiring between configuration and training
    (
        "training/callbacks/retrieval.py",
        'data.load("val")',
        'data.load("train")',
        "commands/test_settings.py::test_final_split_val_is_measured_as_the_epochs_are",
    ),
    ("training/build.py", 'positives=settings["positives"],', 'positives="image",', f"{SETTINGS}[train]"),
    ("training/build.py", 'embedding_dropout=settings["embedding_dropout"],', "", f"{SETTINGS}[train]"),
    (
        "training/build.py",
        'drop_words=settings["augmentation"]["drop_words"],',
        "",
        f"{SETTINGS}[train]",
    ),
    (
        "training/module.py",
        "+ self.teacher.weight * distillation",
        "+ distillation",
        f"training/test_teacher.py {SETTINGS}[train]",
    ),
    (
        "cli/train.py",
        "str(cfg.final_split)",
        '"test"',
        "commands/test_settings.py::test_final_split_val_is_measured_as_the_epochs_are",
    ),
    (
        "training/datamodule.py",
        "self.seed, self.captions_per_image, min_pairs",
        "self.seed, 1, min_pairs",
        f"{SETTINGS}[train]",
    ),
    ("training/module.py", "set_epoch(self.current_epoch)", "set_epoch(0)", f"{SETTINGS}[loss/sum_to_max]"),
    (
        "training/build.py",
        "current == expected,",
        "True,",
        "commands/test_commands.py commands/test_noise_command.py",
    ),
    (
        "training/teacher.py",
        '("train", "val"): "was trained on the validation split",',
        "",
        "training/test_teacher.py commands/test_teacher_command.py",
    ),
    (
        "training/closed_form.py",
        'evaluation.metrics["rsum"] > best.rsum',
        'evaluation.metrics["rsum"] < best.rsum',
        "commands/test_solver_command.py",
    ),
    ("cli/sweep.py", "json.dumps(settings, ", "json.dumps(sorted(settings), ", "commands/test_sweeps.py"),
    (
        "training/train.py",
        " + trainer.current_epoch + process_number()",
        " + process_number()",
        "commands/test_settings.py::test_each_epoch_draws_its_own_dropout",
    ),
    ("encoders/texts.py", "nn.init.xavier_uniform_(self.words.weight)", "pass", "encoders/test_text_gru.py"),
    ("encoders/pooling.py", "earlier_ranks[: len(later)] += ~behind", "pass", "encoders/test_pooling.py"),
    (
        "training/module.py",
        "self.loss.takes_centrality, batch.caption_ids",
        "self.loss.takes_centrality, batch.caption_ids[part]",
        "training/test_module.py training/test_gather.py commands/test_processes.py",
    ),
    (
        "report/run_plots.py",
        'groupby("epoch")["val/rsum"]',
        'groupby("epoch")["train/loss"]',
        "report/test_report_runs.py report/test_report_page.py",
    ),
    (
        "data/noise.py",
        '"index": None if noise.index is None else str(noise.index)',
        '"index": None',
        "data/test_noise.py",
    ),
    (
        "ranking/inputs.py",
        'Names("tune_queries", len(tune), tune.ids)',
        'Names("tune_queries", len(tune), None)',
        "commands/test_chosen_on_other_queries.py",
    ),
    # Configuration
    (
        "recipes.py",
        "AFFECTS_RESULTS.search(key) or in_recipe(key)",
        "in_recipe(key)",
        "commands/test_sweeps.py report/test_recipes.py",
    ),
    (
        "training/build.py",
        '{"seed": settings["seed"]} | (settings',
        '{"seed": 0} | (settings',
        "commands/test_noise_command.py",
    ),
    (
        "cli/train.py",
        'earlier_record.get("digest") == digest(plain(cfg))',
        "True",
        "commands/test_sweeps.py commands/test_commands.py",
    ),
    # Callbacks
    ("training/callbacks/warmup.py", "rate * (step + 1) / self.steps", "rate", "training/test_warmup.py"),
    (
        "training/callbacks/bank.py",
        "round(self.fraction * pairs)",
        "round(0.05 * pairs)",
        "training/test_bank_callback.py",
    ),
    (
        "training/callbacks/collapse.py",
        "step - self.since < self.patience",
        "step - self.since < 0",
        "training/test_collapse.py",
    ),
    ("training/train.py", 'mode="max"', 'mode="min"', "training/test_best_epoch.py"),
    # Data
    ("data/pairs.py", "(ends > start) & (ends <= start + most)", "ends <= start + most", "data/test_pairs.py"),
    ("data/noise.py", "replace(clean, pairs=pairs_by_caption(images))", "clean", "data/test_noise.py"),
    ("data/text/vocabulary.py", "if count >= min_count", "if count > min_count", "data/text/test_vocabulary.py"),
    # Report
    ("report/statistics.py", "np.arange(len(tested), 0, -1)", "len(tested)", "report/test_statistics.py"),
    ("report/results.py", 'if group["seed"].is_unique:', "if True:", "report/test_report_tables.py"),
]


def survives(number: int, base: Path) -> str | None:
    """The mutation in words where its tests pass; None where they fail. Runs in a process of its own."""
    file, old, new, tests = MUTATIONS[number]
    copy = base / str(number)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "src" / "vsehub" / file
    text = path.read_text()
    if text.count(old) != 1:
        return f"{file}: {old!r} stands {text.count(old)} times in the file"
    path.write_text(text.replace(old, new))
    (copy / "conf").symlink_to(ROOT / "conf")
    os.environ |= {"PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
    sys.path.insert(0, str(copy / "src"))
    paths = [str(ROOT / "tests" / name) for name in tests.split()]
    began, output = time.monotonic(), io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(output):
        status = pytest.main(["-q", "-x", "-n0", "-m", "not long", "-p", "no:cacheprovider", *paths])
    shutil.rmtree(copy)
    killed = [line for line in output.getvalue().splitlines() if line.startswith(("FAILED", "ERROR"))]
    seconds = f"{time.monotonic() - began:.0f} s"
    print(f"{number:2} {seconds:>6} {file}: {killed[0][:110] if killed else 'SURVIVES'}", flush=True)
    return None if status == pytest.ExitCode.TESTS_FAILED else f"{file}: {old!r} -> {new!r}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="words of the files")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    numbers = [n for n, (file, *_) in enumerate(MUTATIONS) if any(word in file for word in options.only)]
    base = Path(tempfile.mkdtemp(prefix="vsehub-mutations-"))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "pytorch_lightning", "hydra", "pandas", "hypothesis"])
    with ProcessPoolExecutor(options.jobs, context, max_tasks_per_child=1) as pool:
        alive = [text for text in pool.map(survives, numbers, itertools.repeat(base)) if text]
    print(*alive, f"{len(numbers)} mutations, {len(alive)} survive", sep="\n")
    sys.exit(bool(alive))


if __name__ == "__main__":
    main()
