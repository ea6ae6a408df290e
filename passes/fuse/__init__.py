"""Graph -> FusionPlan: layers, merging, the gate, packing; and back to a Graph with kernels in it."""
