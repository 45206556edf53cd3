"""Level 2: functions with PyTorch's signatures whose backward passes are gradkern's, where `enable` cannot reach."""
