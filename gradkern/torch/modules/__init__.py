"""Modules with those functions inside (layers.py), and level 3, `accelerate`, which puts them into a model in place."""
