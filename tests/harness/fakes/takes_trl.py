"""Imports a module of TRL that nothing has imported yet."""


def scenario(rank):
    import importlib

    module = importlib.import_module("trl.trainer.sft_config")
    rank.check("imported", module, "")
