#!/usr/bin/env python3
"""Checks the structure of the sources: which layer includes which, that folders' includes have no cycle, where external
headers may appear, and the size of files and functions. Prints one "file:line: message" per violation and exits with 1
if there are any.

    tools/check_layers.py [--root FOLDER]     checks a checkout
    tools/check_layers.py --self-test         plants violations and expects each to be found
"""
import argparse
import ast
import pathlib
import re
import sys
import tempfile

# Layer: what it may include besides itself. Layers that may not include each other are simply not listed. A folder of
# kernels holds files of four layers, by their names: record*, rules* and binding*, and all else is of "kernels".
PURE = ["base", "files", "kernel_interface", "optim", "config", "model", "layout", "record", "program", "rules"]
DEVICE = ["base", "files", "kernel_interface", "memory", "layout", "config", "runtime", "kernels"]
STANDS_ON = ["base", "files", "config", "layout"]
JOB = sorted(set(PURE + DEVICE + ["plan", "data", "telemetry", "engine", "checkpoint"]))
LAYERS = {
    "base": [],
    "files": ["base"],
    "kernel_interface": ["base"],
    "optim": ["base", "kernel_interface"],
    "config": ["base", "files", "optim"],
    "translate": ["base", "files", "config"],
    "layout": ["base", "config"],
    "record": ["base", "layout"],
    "model": ["base", "config", "record"],
    "program": [layer for layer in PURE if layer not in ("files", "program", "rules")],
    "rules": [layer for layer in PURE if layer not in ("files", "rules")],
    "plan": PURE,
    "memory": ["base", "files"],
    "runtime": ["base", "config", "layout", "memory"],
    "kernels": ["base", "files", "kernel_interface", "optim", "memory", "runtime"],
    "data": STANDS_ON,
    "telemetry": STANDS_ON,
    "engine": sorted(set(PURE + DEVICE) - {"files"}),
    "binding": sorted(set(PURE + DEVICE) - {"files"}) + ["engine"],
    "checkpoint": sorted(set(PURE + DEVICE) - {"kernels"}),
    "job": JOB,
    "generate": JOB + ["job"],
    "evaluate": JOB + ["job"],
    "bench": JOB + ["job"],
    "train": JOB + ["job"],
    "app": JOB + ["job", "generate", "evaluate", "bench", "train", "translate"],
}

# External headers and the layers (or files, as regular expressions on the path) that may include them.
EXTERNAL = [
    ("MPI", r"mpi\.h$", [r"src/runtime/", r"src/checkpoint/"]),
    ("HDF5", r"hdf5(_hl)?\.h$|H5\w+\.h$", [r"src/files/hdf5_", r"src/data/tokens/hdf5_"]),
    ("yaml-cpp", r"yaml-cpp/", [r"src/translate/"]),
    ("liburing", r"liburing\.h$", [r"src/memory/nvme/"]),
    ("Kokkos", r"Kokkos_", [r"kernels/.*\.cpp$", r"kernels/launch/exec_kokkos\.hpp$", r"src/runtime/.*\.cpp$"]),
    ("CUDA", r"(cuda|cublas|cudnn|nccl)\w*\.h$",
     [r"kernels/.*(\.cpp|\.cu|_cudnn\.hpp|_tile_cuda\.hpp)$", r"src/runtime/.*\.(cpp|cu)$", r"src/runtime/device/launch_cuda\.hpp$"]),
    ("oneDNN", r"(oneapi/)?dnnl|dnnl\.", [r"kernels/"]),
]
# A kernel header with this sentence near its top is internal to kernel sources and may include what they may.
INTERNAL_HEADER = "Included by kernel sources only"

MAX_FILE_LINES = 400      # a file has fewer
MAX_FUNCTION_LINES = 60   # a function has no more
MAX_FOLDER_SOURCES = 20   # a folder of src and kernels has no more; a header, its source and its variants are one
SIZED = ["src", "kernels", "tools", "tests"]
SOURCE = {".cpp", ".hpp", ".h", ".cu"}
SCRIPT = {".py", ".sh"}

OF_OPS = ("record", "rules", "binding")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layer_of(path):
    """The layer of a path relative to the root, or None for tests and tools."""
    parts = path.parts
    if parts[0] == "kernels":
        return next((layer for layer in OF_OPS if path.name.startswith(layer)), "kernels")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def check_includes(path, lines):
    layer = layer_of(path)
    if layer is not None and layer not in LAYERS:
        yield 1, f"folder {layer} is no layer: add it to LAYERS in tools/check_layers.py"
        return
    internal = layer == "kernels" and any(INTERNAL_HEADER in line for line in lines[:12])
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(2)
        if layer is not None:
            yield from ((number, m) for m in external_violations(path, name, internal))
            if match.group(1) == '"':
                yield from ((number, m) for m in layer_violations(layer, name))


def external_violations(path, name, internal):
    for library, pattern, places in EXTERNAL:
        if re.match(pattern, name) and not internal:
            if not any(re.match(place, path.as_posix()) for place in places):
                yield f"<{name}>: {library} headers may not appear here"


def layer_violations(layer, name):
    target = name.split("/")[0]
    if target == "kernels":
        target = layer_of(pathlib.PurePath(name))
    if name.endswith(".inc"):
        return   # a list that the build writes
    if "/" not in name:
        yield f'"{name}": name the header from the root of src/ or of the repository'
    elif target in ("tests", "tools"):
        yield f'"{name}": sources may not include {target}/'
    elif target in LAYERS and target != layer and target not in LAYERS[layer]:
        yield f'"{name}": layer {layer} may not include {target} (it may: {", ".join(LAYERS[layer]) or "nothing"})'


def node_of(path):
    """The folder of a source of src or kernels, in kernels also the layer if it is one of the ops'; None for others."""
    folder, layer = path.parent.as_posix(), layer_of(path)
    if path.parts[0] not in ("src", "kernels"):
        return None
    return f"{folder} ({layer})" if path.parts[0] == "kernels" and layer != "kernels" else folder


def folder_includes(root, paths):
    """Which folder includes which: {from: {to: "file:line" of the first include}}."""
    edges = {}
    for path in paths:
        source = path.relative_to(root)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match or match.group(1) != '"':
                continue
            name = match.group(2)
            target = pathlib.PurePath(name if name.startswith("kernels/") else f"src/{name}")
            begin, end = node_of(source), node_of(target)
            if begin and begin != end and (root / target).is_file():
                edges.setdefault(begin, {}).setdefault(end, f"{source.as_posix()}:{number}")
    return edges


def way(edges, begin, end):
    """The shortest way from begin to end, both included, or None."""
    ways, seen = [[begin]], {begin}
    for so_far in ways:
        if so_far[-1] == end:
            return so_far
        ways += [so_far + [n] for n in sorted(edges.get(so_far[-1], {})) if not (n in seen or seen.add(n))]
    return None


def check_cycles(root, paths):
    """The shortest cycle of includes between folders."""
    edges = folder_includes(root, paths)
    cycles = [[begin] + back for begin in edges for end in edges[begin] if (back := way(edges, end, begin))]
    if cycles:
        shortest = min(cycles, key=lambda cycle: (len(cycle), cycle))
        steps = [f"{a} -> {b} ({edges[a][b]})" for a, b in zip(shortest, shortest[1:])]
        yield f"{edges[shortest[0]][shortest[1]]}: a cycle of includes between folders: {', '.join(steps)}"


LITERALS = re.compile(
    r'R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"'   # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                 # strings
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])'"  # characters, but not digit separators
    r"|//[^\n]*|/\*.*?\*/"                  # comments
    r"|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*",     # preprocessor lines
    re.S | re.M)


def blank_literals(text):
    """The text with comments, literals and preprocessor lines emptied, all newlines kept."""
    return LITERALS.sub(lambda m: "\n" * m.group(0).count("\n") or " ", text)


def is_function_head(head):
    """Whether the text before an opening brace at namespace or class level begins a function."""
    previous = None
    while previous != head:   # innermost template argument lists first
        previous, head = head, re.sub(r"<[^<>(){}]*>", " ", head)
    if re.match(r"\s*(template\s*)?(inline\s+)?(namespace|class|struct|enum|union|extern)\b", head) \
            and not re.search(r"\)\s*(const|noexcept|override|final|\s)*$", head):
        return False
    if "operator" not in head and re.search(r"(?<![=!<>])=(?!=)", re.sub(r"\([^()]*\)", "", head)):
        return "](" in head.replace(" ", "")   # an initialiser, unless it is a lambda
    return "(" in head


def functions(text):
    """Yields (first line, lines) of every function, by counting braces. A heuristic: it reads no C++."""
    stack, head, head_line, line = [], "", 1, 1
    for character in blank_literals(text):
        if character == "\n":
            line += 1
        if character == "{":
            inside = any(kind == "function" for kind, _ in stack)
            kind = "function" if not inside and is_function_head(head) else "other"
            stack.append((kind, head_line if head.strip() else line))
            head = ""
        elif character == "}":
            if stack:
                kind, start = stack.pop()
                if kind == "function":
                    yield start, line - start + 1
            head = ""
        elif character == ";" and head.count("(") <= head.count(")"):
            head = ""
        else:
            if not head.strip() and not character.isspace():
                head, head_line = "", line
            head += character


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1


def check_sizes(path, text):
    count = text.count("\n")
    if count >= MAX_FILE_LINES:
        yield count, f"{count} lines; a file has fewer than {MAX_FILE_LINES}"
    found = functions(text) if path.suffix in SOURCE else python_functions(text) if path.suffix == ".py" else ()
    for start, length in found:
        if length > MAX_FUNCTION_LINES:
            yield start, f"a function of {length} lines; at most {MAX_FUNCTION_LINES}"


def check_folders(paths):
    """Folders of src and kernels that hold too much to be looked through."""
    folders = {}
    for path in paths:
        if path.parts[0] in ("src", "kernels"):
            folders.setdefault(path.parent, set()).add(re.sub(r"_(cpu|cuda)$", "", path.stem))
    for folder, sources in sorted(folders.items()):
        if len(sources) > MAX_FOLDER_SOURCES:
            yield f"{folder.as_posix()}:1: {len(sources)} sources; a folder has at most {MAX_FOLDER_SOURCES}"


def files_of(root):
    for folder in SIZED:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SOURCE | SCRIPT and path.is_file() and "__pycache__" not in path.parts:
                yield path


def check(root):
    """All violations of the checkout at root, as sorted "file:line: message" strings, and the number of files."""
    paths = list(files_of(root))
    sources = [path for path in paths if path.suffix in SOURCE]
    violations = list(check_folders(path.relative_to(root) for path in sources))
    violations += check_cycles(root, sources)
    for path in paths:
        relative = path.relative_to(root)
        text = path.read_text(encoding="utf-8", errors="replace")
        found = list(check_sizes(relative, text))
        if path.suffix in SOURCE:
            found += check_includes(relative, text.splitlines())
        violations += [f"{relative}:{line}: {message}" for line, message in sorted(found)]
    return violations, len(paths)


LONG_FUNCTION = "namespace ztrain {\nint planted(int x) {\n" + "  x += 1;\n" * 60 + "  return x;\n}\n}\n"
TABLE = "namespace ztrain {\nconst int table[] = {\n" + "  1,\n" * 80 + "};\n}\n"
SCOPE = "struct Planted {\n" + "  int f() const { return 1; }\n" * 80 + "};\n"
# (file, what is put into it, a part of the message expected; None: nothing may be reported)
PLANTS = [
    ("src/base/planted.cpp", '#include "config/deck.hpp"\n', "layer base may not include config"),
    ("src/optim/planted0.hpp", '#include "config/deck.hpp"\n', "layer optim may not include config"),
    ("src/model/planted.cpp", '#include "layout/mesh.hpp"\n', "layer model may not include layout"),
    ("src/layout/planted.hpp", '#include "model/graph.hpp"\n', "layer layout may not include model"),
    ("src/program/planted.cpp", '#include "runtime/comm/comm.hpp"\n', "layer program may not include runtime"),
    ("src/engine/planted.cpp", '#include "checkpoint/writer.hpp"\n', "layer engine may not include checkpoint"),
    ("kernels/activation/record.hpp", '#include "program/ir/program.hpp"\n', "layer record may not include program"),
    ("kernels/activation/rules_all.cpp", '#include "kernels/activation/activation.hpp"\n', "layer rules may not include kernels"),
    ("kernels/activation/gated.cpp", '#include "kernels/activation/record.hpp"\n', "layer kernels may not include record"),
    ("src/program/planted4.cpp", '#include "kernels/attention/rules.hpp"\n', "layer program may not include rules"),
    ("kernels/activation/binding.cpp", '#include "kernels/activation/activation.hpp"\n#include "engine/dispatch.hpp"\n', None),
    ("src/model/fine.cpp", '#include "kernels/activation/record.hpp"\n', None),
    ("src/optim/planted.cpp", '#include "data/sampler.hpp"\n', "layer optim may not include data"),
    ("src/train/planted.cpp", '#include "app/main.hpp"\n', "layer train may not include app"),
    ("kernels/planted.cpp", '#include "program/ir/program.hpp"\n', "layer kernels may not include program"),
    ("src/base/planted2.cpp", '#include "tests/support/mpi_main.hpp"\n', "may not include tests/"),
    ("src/base/planted3.cpp", '#include "error.hpp"\n', "from the root of src/"),
    ("src/novel/planted.cpp", "int planted;\n", "folder novel is no layer"),
    ("src/program/planted2.cpp", "#include <mpi.h>\n", "MPI headers may not appear here"),
    ("src/plan/planted.cpp", '#include "memory/provider.hpp"\n', "layer plan may not include memory"),
    ("src/program/planted3.cpp", '#include "plan/setup.hpp"\n', "layer program may not include plan"),
    ("src/config/planted.cpp", "#include <hdf5.h>\n", "HDF5 headers may not appear here"),
    ("src/memory/planted.cpp", "#include <liburing.h>\n", "liburing headers may not appear here"),
    ("src/engine/planted2.cpp", "#  include <Kokkos_Core.hpp>\n", "Kokkos headers may not appear here"),
    ("kernels/planted.hpp", "#include <Kokkos_Core.hpp>\n", "Kokkos headers may not appear here"),
    ("src/layout/planted.cpp", "#include <cuda_runtime.h>\n", "CUDA headers may not appear here"),
    ("src/engine/planted3.cpp", "#include <oneapi/dnnl/dnnl.hpp>\n", "oneDNN headers may not appear here"),
    ("src/base/planted4.cpp", "int x;\n" * 400, "400 lines"),
    ("tools/planted.py", "x = 1\n" * 400, "400 lines"),
    ("src/base/planted5.cpp", LONG_FUNCTION, "a function of 63 lines"),
    ("tools/planted2.py", "def f(x):\n" + "    x += 1\n" * 60, "a function of 61 lines"),
    ("src/base/fine.cpp", TABLE + SCOPE + 'const char* a = "{"; char b = \'{\'; // {\nint c = 1\'000;\n', None),
    ("kernels/fine.cpp", '#include <Kokkos_Core.hpp>\n#include "runtime/comm/comm.hpp"\n', None),
    ("kernels/fine.hpp", f"// {INTERNAL_HEADER}.\n#include <Kokkos_Core.hpp>\n", None),
    ("src/files/hdf5_fine.cpp", '#include <hdf5.h>\n#include "base/error.hpp"\n', None),
    ("tests/unit/fine.cpp", '#include "app/anything.hpp"\n#include <mpi.h>\n', None),
]


# Two folders whose headers include each other, and an op's rules whose includes come back to its record alone.
CYCLE = {
    "src/base/one/a.hpp": '#include "base/two/b.hpp"\n',
    "src/base/two/b.hpp": '\n#include "base/one/c.hpp"\n',
    "src/base/one/c.hpp": "",
    "kernels/rope/rules.cpp": '#include "program/ops/emit.hpp"\n',
    "src/program/ops/emit.hpp": '#include "kernels/rope/record.hpp"\n',
    "kernels/rope/record.hpp": "",
}


def test_cycles(copy):
    """Plants a cycle; returns what went wrong."""
    for name, text in CYCLE.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text)
    expected = "src/base/one/a.hpp:1: a cycle of includes between folders: src/base/one -> src/base/two " \
        "(src/base/one/a.hpp:1), src/base/two -> src/base/one (src/base/two/b.hpp:2)"
    found = check(copy)[0]
    return [] if found == [expected] else [f"a cycle: expected {expected}, reported: {found}"]


def self_test():
    """Plants each violation in an empty checkout; returns what went wrong."""
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for name, text, expected in PLANTS:
            path = copy / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            found = check(copy)[0]
            path.unlink()
            if expected is None and found:
                wrong.append(f"{name}: is legal, but reported: {sorted(found)}")
            elif expected is not None and not any(expected in v and v.startswith(name + ":") for v in found):
                wrong.append(f"{name}: expected '{expected}', reported: {sorted(found)}")
        (copy / "src/base/full").mkdir(parents=True)
        for i in range(MAX_FOLDER_SOURCES + 1):
            (copy / f"src/base/full/planted{chr(ord('a') + i)}.cpp").write_text("int x;\n")
        if not any(v.startswith("src/base/full:1: 21 sources") for v in check(copy)[0]):
            wrong.append("src/base/full: its 21 sources are not reported")
    with tempfile.TemporaryDirectory() as folder:
        wrong += test_cycles(pathlib.Path(folder))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        wrong = self_test()
        print("\n".join(wrong) or f"self-test: all {len(PLANTS)} planted files judged rightly")
        return 1 if wrong else 0
    violations, count = check(arguments.root)
    print("\n".join(violations) if violations else f"layers: {count} files, no violation")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
