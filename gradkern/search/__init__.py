"""Choosing among several ways to compute one thing on a GPU: by measurement, with each result checked, once."""
