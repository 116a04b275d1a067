"""A small synchronous Kafka client on the project's own codec, for Spark's executors and planners.

* `errors`: what can go wrong, each with what to do about it.
* `connection.Connection`: one socket to one broker; negotiated versions, a request object in, an answer object out, or
  several requests in flight.
* `cluster.Cluster`: bootstrap, metadata, one connection per broker, retries with back-off while leaders move.
* `list_offsets`: offsets by place (earliest, latest, latest timestamp) and by time.
* `fetcher.Fetcher`: one partition's batches, the next fetch under way while the current one is decoded.

Everything is blocking and belongs to one thread.  Its connections may be under TLS and
begin with SASL (`ClientSettings.security`).
"""
