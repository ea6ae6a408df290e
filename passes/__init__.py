"""Graph -> Graph -> FusionPlan -> Kernel; one pass, one file, one verb."""
