"""The version of gradkern and of its packages. tools/release changes it."""

__all__ = ["__version__"]

__version__ = "0.2.0"
