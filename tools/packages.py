"""Python packages that a tool here lacks: another interpreter that has them, or a sentence that says how to install them. It names
the interpreter, since that of `/usr/bin/env python3` is often another one than the system's packages are for."""

import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

DEBIAN = {"h5py", "jinja2", "matplotlib", "numpy", "torch", "xxhash", "zstandard"}  # Debian 12 has them as python3-NAME
CHOSEN = "ZTRAIN_TOOL_PYTHON"  # in the environment: the interpreter that was chosen for its packages
PROBE = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"


def pip_may_install():
    """Not into the Python of a distribution that marks it as its own (PEP 668): there pip refuses."""
    marked = (pathlib.Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED").exists()
    return sys.prefix != sys.base_prefix or not marked


def lacks(*names):
    """The sentence; it names all packages at once."""
    words = " ".join(names)
    debian = " ".join(f"python3-{name}" for name in names)
    ways = [f"`apt install {debian}` and run this with /usr/bin/python3"] if DEBIAN.issuperset(names) else []
    if pip_may_install():
        ways.append(f"`{sys.executable} -m pip install {words}`")
    else:
        make = f"`{sys.executable} -m venv --system-site-packages ~/zt && ~/zt/bin/pip install {words}`"
        ways.append(f"{make} and run this with ~/zt/bin/python")
    package = f"package {names[0]}" if len(names) == 1 else f"packages {', '.join(names[:-1])} and {names[-1]}"
    return f"{sys.executable} has no Python {package}: {', or '.join(ways)}"


def missing(names):
    """Returns the packages that are not here, or that one of them needs and that is not here."""
    found = []
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            found.append(error.name or name)
    return list(dict.fromkeys(found))


def interpreters():
    """Others that may have packages: of the virtual environment, of PATH, of the system, and the environment of docs/data.md."""
    environment = os.environ.get("VIRTUAL_ENV")
    found = [environment and f"{environment}/bin/python", shutil.which("python3"), "/usr/bin/python3", os.path.expanduser("~/zt/bin/python")]
    return [path for path in dict.fromkeys(found) if path and path != sys.executable and os.access(path, os.X_OK)]


def has(interpreter, names):
    try:
        return subprocess.run([interpreter, "-c", PROBE, *names], capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def run_with(*names):
    """Returns if the packages are here. Else starts this tool anew in the first interpreter that has them all, or ends it with
    the sentence."""
    tool, lacking = os.path.basename(sys.argv[0]), missing(names)
    if not lacking:
        return
    found = None if CHOSEN in os.environ else next((path for path in interpreters() if has(path, names)), None)
    if found is None:
        sys.exit(f"{tool}: {lacks(*lacking)}")
    print(f"{tool}: {sys.executable} has no {' and '.join(lacking)}: goes on with {found}", file=sys.stderr, flush=True)
    os.execve(found, [found, *sys.argv], {**os.environ, CHOSEN: found})
