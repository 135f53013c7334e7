"""Compiles Python sources; run by a stack's interpreter with ``-I -S``, so that nothing of it runs.

Needs the standard library only.  Reads JSON: triples of a source, what RECORD says of it
(``sha256=…``, nothing for the standard library) and where its bytecode goes.  A source that RECORD
does not describe is left out: what is compiled here is executed in every stack with that wheel.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import marshal
import os
import sys
import warnings
from pathlib import Path


def compiled(source: str, hash_: str) -> bytes | None:
    """A source's bytecode, valid as long as the source is as it was; None if there is none."""
    data = Path(source).read_bytes()
    if hash_:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if hash_ != f"sha256={digest}":
            return None
    try:
        code = compile(data, source, "exec", dont_inherit=True, optimize=0)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # a template, or a source for another Python
    body = marshal.dumps(code)
    if not hash_:  # an interpreter may be upgraded where it is: the time tells
        state = os.stat(source)
        when = (int(state.st_mtime) & 0xFFFFFFFF, state.st_size & 0xFFFFFFFF)
        head = (0).to_bytes(4, "little") + b"".join(n.to_bytes(4, "little") for n in when)
    else:  # 0b01: by hash, and not checked against the source when it is imported
        head = (0b01).to_bytes(4, "little") + importlib.util.source_hash(data)
    return importlib.util.MAGIC_NUMBER + head + body


def main() -> None:
    """Compiles what is named on stdin."""
    warnings.simplefilter("ignore")
    for source, hash_, target in json.load(sys.stdin):
        try:
            content = compiled(source, hash_)
        except OSError:
            continue
        if content is None:
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        draft = f"{target}.{os.getpid()}"
        with open(draft, "wb") as file:
            file.write(content)
        os.chmod(draft, 0o444)
        os.replace(draft, target)


if __name__ == "__main__":
    main()
