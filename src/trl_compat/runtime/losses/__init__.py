"""Trainers and the right values of their losses, a module each.

Unlike the rest of the runtime, a module of this folder counts only for the cells whose
reproduction imports it: a new one makes no other cell run again.
"""
