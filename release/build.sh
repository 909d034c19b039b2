#!/usr/bin/env bash
# Builds the sdist and, from it, the wheel into build/dist: the same bytes from the same commit. Then installs each into
# an empty environment outside of the checkout, and uses it there.
set -euo pipefail
cd "$(dirname "$0")/.."
make setup
rm -rf build/dist
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
.venv/bin/python -m build --no-isolation --outdir build/dist
(cd build/dist && sha256sum ./*)
VSEHUB_TEST_DIST="$PWD/build/dist" OMP_NUM_THREADS=1 \
  .venv/bin/python -m pytest -q -n0 tests/artefacts/test_artefacts.py tests/artefacts/test_installed.py
