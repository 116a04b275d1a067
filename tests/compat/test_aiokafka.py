"""aiokafka against the broker."""

from __future__ import annotations

import pytest

from tests.compat.admin import Admin
from tests.compat.brokers import BrokerProcess
from tests.compat.kinds import AIOKAFKA
from tests.compat.matrix import StartDriver, check_codec, check_group, check_idempotent


@pytest.mark.parametrize("codec", AIOKAFKA.codecs)
def test_each_codec_comes_back_as_sent(codec: str, broker: BrokerProcess, admin: Admin, drivers: StartDriver) -> None:
    """Users of aiokafka would lose or garble records, or store them uncompressed without a word."""
    check_codec(AIOKAFKA, codec, broker, admin, drivers)


def test_idempotent_producer(admin: Admin, drivers: StartDriver) -> None:
    """Users of aiokafka could not produce with idempotence, or would find records twice."""
    check_idempotent(AIOKAFKA, admin, drivers)


def test_group_survives_members_and_restart(broker: BrokerProcess, admin: Admin, drivers: StartDriver) -> None:
    """Groups of aiokafka consumers would miss or repeat records as members or the broker come and go."""
    check_group(AIOKAFKA, broker, admin, drivers)
