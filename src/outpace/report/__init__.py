"""Reports: pages and files for other programs, made from the folders of runs alone.

Nothing is imported here: processes of a run import modules of this package that need neither plotly
nor Jinja2.
"""
