"""What every pass stands on: patterns and plans, the target's profile, rewriting, how an op reads."""
