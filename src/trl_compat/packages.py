"""The packages under test, and how package names are compared; free of slow imports."""

from __future__ import annotations

PACKAGES = ("torch", "trl", "transformers", "deepspeed", "accelerate", "peft")

# In the order in which people name them.
SHOWN_PACKAGES = ("trl", "torch", "transformers", "deepspeed", "accelerate", "peft")

# What TRL itself requires: wherever TRL is installed these are, too.
REQUIRED_BY_TRL = ("torch", "transformers", "accelerate")
