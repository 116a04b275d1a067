"""Clients that people run, against a running broker.

The same tests run on kbroker (the default) and on real Apache Kafka (`KBROKER_TEST_TARGET=kafka`), so that a test
is known to say the truth about Kafka before it is held against kbroker.
"""

import pytest

pytest.register_assert_rewrite("tests.compat.matrix")
