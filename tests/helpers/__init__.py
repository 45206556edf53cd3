"""What tests share. It is imported as `helpers`: pytest has the folder above it on its path."""
