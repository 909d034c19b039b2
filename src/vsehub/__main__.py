"""`python -m vsehub COMMAND ...`: the same as `vsehub COMMAND ...`; for torchrun, which starts modules."""

import os
import sys
from contextlib import suppress

if __name__ == "__main__":
    with suppress(OSError):  # raised where the working folder was removed
        if not sys.flags.safe_path and sys.path[0] in ("", os.getcwd()):
            del sys.path[0]  # `-m` puts the working folder there: a yaml.py in it would be imported for the package
    from vsehub.cli.main import main

    main()
