"""Modules of torch.nn that call gradkern.torch.functional (layers.py), and level 3, to put them into models."""
