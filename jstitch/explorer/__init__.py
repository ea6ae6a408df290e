"""Plans in Google's Model Explorer; `model-explorer step.mlir --extensions=jstitch.explorer` loads main."""
