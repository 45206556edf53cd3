"""The operators' code: one folder for each family of the registry, one module for each provider that serves it."""
