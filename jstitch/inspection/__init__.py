"""Looking at what jstitch does with a program, without running it: plans, reasons, dumps, reports."""
