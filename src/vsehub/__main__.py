"""`python -m vsehub COMMAND ...`: the same as `vsehub COMMAND ...`; for torchrun, which starts modules."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the working folder or this file's, where a yaml.py would hide PyYAML
    from vsehub.cli.main import main

    main()
