"""What XLA makes of a program: read from its optimised HLO and thunks, for GPUs without one, too.

lowered program -> HLO and thunks (compile) -> Module (hlo), Thunks (thunks, cpu_thunks) -> Launches, traffic
"""
