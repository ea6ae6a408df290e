"""FusionPattern -> Kernel: groups, levels, templates, places, tiles; and how long a kernel takes."""
