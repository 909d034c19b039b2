"""`python -m vsehub COMMAND ...`: the same as `vsehub COMMAND ...`; for torchrun, which starts modules."""

from vsehub.cli.main import main

if __name__ == "__main__":
    main()
