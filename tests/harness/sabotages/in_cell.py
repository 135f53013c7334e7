"""What the ranks of a sabotaged cell run in the reproduction's place.

The cell's conditions say which reproduction that is (``reproduced``, a path), which sabotage to
commit before its scenario runs (``sabotage``, None for none), and which modules of the runtime to
take from another file (``replaced``, paths by name), for mutants of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from trl_compat.runtime.context import Rank
from trl_compat.runtime.rank import load_reproduction

PACKAGE = "sabotages"


def scenario(rank: Rank) -> None:
    for name, path in rank.condition("replaced", {}).items():
        load(name, path)
    reproduction = load_reproduction(rank.condition("reproduced"))
    function = rank.condition("sabotage")
    if function is not None:
        folder = Path(__file__).parent
        load(PACKAGE, str(folder / "__init__.py"), str(folder))
        module = importlib.import_module(f"{PACKAGE}.{Path(rank.condition('reproduced')).stem}")
        getattr(module, function)(rank, reproduction)
    reproduction.scenario(rank)


def load(name: str, path: str, folder: str | None = None) -> None:
    """Imports a module from a file by a name of our choice; a package if it has a folder."""
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[folder] if folder else None
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
