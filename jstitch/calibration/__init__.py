"""Measure this machine once, and remember it for the cost models."""
