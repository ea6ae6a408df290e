"""The language: types, Graph, the op table, its verifier, printer and interpreter. Imports NumPy only."""
