"""Names of the Hugging Face hub: told from folders that are not there, and asked for once, without noise."""

import logging
import os
import pathlib
import re


class NotFound(Exception):
    """In one line."""


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def why_unread(name, error):
    """In one line: the packages have many for a folder without a tokenizer, and do not say that."""
    folder = pathlib.Path(name)
    if folder.is_dir() and not any(any(folder.glob(files)) for files in ("tokenizer*", "vocab*", "*.model")):
        return "no files of a tokenizer are in it: a model that was trained from scratch is exported without them"
    return first_line(error)


def is_hub_name(name):
    """organisation/model; every other word is a folder's."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", str(name)) is not None


def check_name(name):
    """Throws NotFound unless the name is a folder's or of the hub's form."""
    if pathlib.Path(name).is_dir() or is_hub_name(name):
        return
    what = f"{name} is no folder" if pathlib.Path(name).exists() else f"there is no folder {name}"
    raise NotFound(f"{what} (names of the Hugging Face hub are organisation/model)")


def transformers_tokenizer(name):
    """(tokenizer, path of its tokenizer.json or None) of a folder or of the hub. Throws NotFound, and ImportError without
    transformers."""
    check_name(name)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # while it is imported, it misses PyTorch aloud
    import transformers

    transformers.utils.logging.set_verbosity_error()
    for package in ("transformers", "huggingface_hub", "httpx"):
        logging.getLogger(package).setLevel(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    local = pathlib.Path(name).is_dir()
    trouble = None if local else hub_trouble(name)
    only = {"local_files_only": True} if local or trouble else {}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **only)
        path = transformers.utils.cached_file(
            name, "tokenizer.json", _raise_exceptions_for_missing_entries=False, **only
        )
    except Exception as error:  # what the packages throw is theirs
        if trouble:
            raise NotFound(f"there is no folder {name}, none in the hub's cache, and the hub: {trouble}") from None
        raise NotFound(why_unread(name, error)) from None
    return tokenizer, path


def hub_trouble(name):
    """Why the hub does not give a model, or None. Asks once: the packages ask for each file again and again."""
    import huggingface_hub

    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return "not asked (HF_HUB_OFFLINE)"
    try:
        huggingface_hub.HfApi().model_info(str(name), timeout=10)
    except Exception as error:  # of no common class
        return first_line(error)
    return None
