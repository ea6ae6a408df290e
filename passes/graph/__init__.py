"""Graph -> Graph: the pipeline before planning, one pass, one file, one verb."""
