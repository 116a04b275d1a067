"""The console: web pages about one broker, served by the metrics listener under `/console/`.

The pages (`static/`) are plain HTML, CSS and ES modules; they fetch JSON under `/console/api/`, which is made from the
same parts of the broker that the handlers and the metrics use.  `site.py` is the entry point and lists what is served;
`guard.py` decides whose requests are answered.  What the console changes, where it may, is `manage`'s; for that, and
for records that other brokers lead, it is a client of the cluster, as its viewer (`viewer_client.py`).

It costs what is asked of it: nothing runs while there is no viewer, the figures of the last hour are sampled with those
of metrics (`metrics.recent.Hour`), and what takes long to gather is gathered once for all viewers (`shared_values.py`),
in slices of the loop's time.
"""
