"""The planners that search: generated patterns and their selection (ILP), dynamic programming and beams."""
