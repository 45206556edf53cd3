"""The version of gradkern, which its packages have too. tools/release changes it."""

__all__ = ["__version__"]

__version__ = "0.2.0"
