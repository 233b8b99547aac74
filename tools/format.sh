#!/usr/bin/env bash
# Formats the C++ sources with clang-format.
#   tools/format.sh --fix     rewrites the files
#   tools/format.sh --check   changes nothing; fails and names the places (the default)
set -euo pipefail
# shellcheck source=tools/lib.sh
source "$(dirname "$0")/lib.sh"

if ! command -v clang-format >/dev/null; then
  echo "tools/format.sh: clang-format is not installed (tools/install_packages.sh installs it)" >&2
  exit 1
fi
folders=()
for folder in src kernels tests; do [ -d "$folder" ] && folders+=("$folder"); done
find_sources() { find "${folders[@]}" \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' \) -print0 | sort -z; }

case ${1:---check} in
  --fix) find_sources | xargs -0 -r clang-format -i ;;
  --check)
    # One word per file is enough: --fix does the rest.
    complaints=$(find_sources | xargs -0 -r clang-format --dry-run --ferror-limit=1 2>&1 || true)
    files=$(sed -n 's/^\([^: ]*:[0-9]*\):[0-9]*: \(error\|warning\): .*/\1/p' <<<"$complaints" | sort -u -t: -k1,1)
    if [ -n "$complaints" ]; then
      if [ -n "$files" ]; then sed 's/$/: not formatted/' <<<"$files"; else echo "$complaints"; fi
      echo "tools/format.sh: run tools/format.sh --fix (here: $(clang-format --version))" >&2
      exit 1
    fi
    ;;
  *)
    echo "usage: tools/format.sh [--check | --fix]" >&2
    exit 2
    ;;
esac
