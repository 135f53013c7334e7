"""Loads a model, and tells which modules had to be compiled for that."""

import os
import sys


def scenario(rank):
    from transformers import AutoModelForCausalLM

    before = set(sys.modules)
    AutoModelForCausalLM.from_pretrained(rank.spec.model_dir)
    imported = [module for name, module in list(sys.modules.items()) if name not in before]
    files = [getattr(module, "__cached__", None) for module in imported]
    compiled = [file for file in files if file and not os.path.exists(file)]
    rank.check("nothing-is-compiled", not compiled, f"{len(compiled)}: {compiled[:3]}")
