"""A program's plan as a page to look at: report_html(report_data("step", inspected)) is the file."""
