"""The sentence of every tool here that lacks a Python package: it names the interpreter, since that of `/usr/bin/env
python3` is often another one than the system's packages are for."""

import pathlib
import sys
import sysconfig

DEBIAN = {"h5py", "jinja2", "matplotlib", "numpy", "torch", "xxhash"}  # Debian 12 has them as python3-NAME


def pip_may_install():
    """Not into the Python of a distribution that marks it as its own (PEP 668): there pip refuses."""
    marked = (pathlib.Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED").exists()
    return sys.prefix != sys.base_prefix or not marked


def lacks(name):
    ways = [f"`apt install python3-{name}` and run this with /usr/bin/python3"] if name in DEBIAN else []
    if pip_may_install():
        ways.append(f"`{sys.executable} -m pip install {name}`")
    else:
        make = f"`{sys.executable} -m venv --system-site-packages ~/zt && ~/zt/bin/pip install {name}`"
        ways.append(f"{make} and run this with ~/zt/bin/python")
    return f"{sys.executable} has no Python package {name}: {', or '.join(ways)}"
