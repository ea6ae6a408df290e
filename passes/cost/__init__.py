"""What a pattern costs as one kernel, and as XLA's."""
