#!/usr/bin/env bash
# Puts the headers of cudnn-frontend, cuDNN's C++ graph interface, into build/cudnn-frontend, where CMake finds them.
# They come from the Python wheel nvidia-cudnn-frontend; nothing else of it is used, and nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
# The version that our graphs are tested with; kernels/attention/attention_graph_cudnn_cuda.cpp says which ones are no good.
version=1.32.0
target=build/cudnn-frontend

# found_version: that of the headers that are there, "1.32.0"; nothing where there are none.
found_version() {
  sed -n 's/^#define CUDNN_FRONTEND_\(MAJOR\|MINOR\|PATCH\)_VERSION \([0-9]*\).*/\2/p' \
    "$target/include/cudnn_frontend_version.h" 2>/dev/null | paste -sd.
}
if [ "$(found_version)" = "$version" ]; then exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! python3 -m pip download -q --no-deps --disable-pip-version-check -d "$work" "nvidia-cudnn-frontend==$version" \
  >"$work/log" 2>&1; then
  tail -n 3 "$work/log" >&2
  echo "tools/install_cuda_headers.sh: the wheel nvidia-cudnn-frontend $version could not be fetched. Set CUDNN_FRONTEND_ROOT to" \
    "a folder with include/cudnn_frontend.h instead." >&2
  exit 1
fi
rm -rf "$target"
mkdir -p "$target"
python3 - "$work"/*.whl "$target" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith("include/")])
PYTHON
if [ "$(found_version)" != "$version" ]; then
  echo "tools/install_cuda_headers.sh: the wheel of version $version has headers of version '$(found_version)'" >&2
  exit 1
fi
echo "The headers of cudnn-frontend $version are in $target"
