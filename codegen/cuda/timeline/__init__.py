"""How long a kernel takes, without a GPU: its machine code replayed on a model of a multiprocessor.

machine_code.py   SASS of ptxas, with its control words and the PTX line of each instruction
count_lines.py    how often each warp runs each PTX line, and what it touches: by the PTX interpreter
paths.py          which way each warp goes through the SASS: flows that fit the counts
work.py           what each instruction on that way takes of a multiprocessor
replay.py         warps issue, wait, load and store on some multiprocessors of the grid
timeline.py       all of it: time, what bounds it, where warps wait
"""
