"""Batch norm over the batch of all processes of a group: the module, its prepared steps, and the messages they send."""
