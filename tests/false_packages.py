"""Python files with the names of packages, which note that they were imported and fail."""

NAMES = ("filelock", "hydra", "numpy", "omegaconf", "pytorch_lightning", "safetensors", "torch", "yaml")


def write_false_packages(folder):
    """Write them into a folder; the first that is imported writes its name to the file `imported` there."""
    for name in NAMES:
        text = (
            f"import pathlib\npathlib.Path(__file__).with_name('imported').write_text({name!r})\nraise SystemExit(9)\n"
        )
        (folder / f"{name}.py").write_text(text)
