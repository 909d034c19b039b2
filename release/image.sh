#!/bin/sh
# The steps that fill an image: an environment with the package, compiled, without what only installs.
#
#   release/image.sh SOURCE PREFIX DEVICE [EXTRAS]
#
# SOURCE: a folder with this repository or an unpacked sdist. PREFIX: the environment, which must stay where it is created.
# DEVICE: cpu or gpu. EXTRAS: further extras, separated by commas. TORCH, from the environment: the build of torch in uv's
# words, such as cpu or cu128; empty: the default build, which runs on NVIDIA's GPUs.
set -eu

usage() {
  echo "usage: image.sh SOURCE PREFIX cpu|gpu [EXTRAS]" >&2
  exit 2
}
[ $# -ge 3 ] && [ $# -le 4 ] || usage
source=$1 prefix=$2 device=$3 extras=${4:-}
case $device in
  cpu) torch=${TORCH-cpu} ;;
  gpu) torch=${TORCH-} ;;
  *) usage ;;
esac

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check -c "$source/constraints.txt" uv
python3 -m venv --without-pip "$prefix"
"$tools/bin/uv" pip install --quiet --compile-bytecode --python "$prefix" ${torch:+--torch-backend "$torch"} \
  -c "$source/constraints.txt" "$source[train,$device${extras:+,$extras}]"
"$prefix/bin/vsehub" --version
