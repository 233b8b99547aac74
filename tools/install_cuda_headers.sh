#!/usr/bin/env bash
# Puts the headers of cudnn-frontend, cuDNN's C++ graph interface, into build/cudnn-frontend, where CMake finds them.
# They come from the Python wheel nvidia-cudnn-frontend; nothing else of it is used, and nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
target=build/cudnn-frontend
if [ -f "$target/include/cudnn_frontend.h" ]; then exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! python3 -m pip download -q --no-deps --disable-pip-version-check -d "$work" nvidia-cudnn-frontend >"$work/log" 2>&1; then
  tail -n 3 "$work/log" >&2
  echo "tools/install_cuda_headers.sh: the wheel nvidia-cudnn-frontend could not be fetched. Set CUDNN_FRONTEND_ROOT to" \
    "a folder with include/cudnn_frontend.h instead." >&2
  exit 1
fi
mkdir -p "$target"
python3 - "$work"/*.whl "$target" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("include/")])
PYTHON
echo "cudnn-frontend's headers are in $target"
