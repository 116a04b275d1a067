"""The console: web pages about one broker, served by the metrics listener under `/console/`.

The pages (`static/`) are plain HTML, CSS and ES modules; they ask for JSON under `/console/api/`, and what there is to
tell they ask of the parts that the handlers and the metrics ask, too.  `site.py` is the door and has the list of
what is served, `guard.py` says whose requests are answered.  The console reads; it changes nothing.

It costs what is asked of it: nothing runs while there is no viewer, no figures are kept on the server, and what takes
long to gather is gathered once for all viewers (`shared_values.py`), in slices of the loop's time.
"""
