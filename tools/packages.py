"""The sentence of every tool here that lacks a Python package: it names the interpreter, since that of `/usr/bin/env
python3` is often another one than the system's packages are for."""

import sys


def lacks(name):
    return (
        f"{sys.executable} has no Python package {name}: install it with `{sys.executable} -m pip install {name}`, or with "
        f"`apt install python3-{name}` and run this with /usr/bin/python3"
    )
