"""A grammar of programs that people write, to draw from what nobody tuned for."""
