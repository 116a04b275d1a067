"""`kbroker start` as a process: what it prints, how it ends, and what it refuses.

Also of `kbroker.cli.reach`, `kbroker.config.images.unread`.
"""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest

from kbroker.cluster.workers.worker_slot import WorkerSlotError, check_count
from kbroker.config import BrokerConfig
from kbroker.storage.directories.log_dirs import LogDirError, open_directories
from kbroker.storage.files.filesystem import FileSystem
from tests.broker_process import answers_api_versions
from tests.conftest import StartBroker
from tests.ports import free_port


def test_start_prints_one_line_when_ready(kbroker_process: StartBroker) -> None:
    """Nobody would know where the broker listens, where its data is and whether it is up."""
    broker = kbroker_process()
    (line,) = [line for line in broker.output().splitlines() if " ready " in line]
    assert f"127.0.0.1:{broker.port}" in line
    assert str(broker.data_dir) in line
    assert re.search(r"kbroker \d+\.\d+", line)
    assert re.search(r"\d+ ms", line)
    with urllib.request.urlopen(f"{broker.metrics_url}/readyz", timeout=10) as answer:
        assert answer.status == 200
    (console,) = re.findall(r"console on (http://127\.0\.0\.1:\d+/console/),", line)
    with urllib.request.urlopen(console, timeout=10) as answer:
        assert answer.status == 200 and b"<html" in answer.read()


def test_the_start_names_no_console_where_there_is_none(kbroker_process: StartBroker) -> None:
    """The user would open an address that says 404."""
    broker = kbroker_process({"kbroker.console.enable": "false"})
    assert " ready on " in broker.output() and "console" not in broker.output()


def test_a_login_listener_without_mechanisms_says_which_setting_is_missing(kbroker_process: StartBroker) -> None:
    """Who wrote nothing of Kerberos would be asked for its login module."""
    broker = kbroker_process({"listeners": f"SASL_PLAINTEXT://127.0.0.1:{free_port()}"}, wait=False)
    broker.spawn()
    assert broker.wait() == 1
    assert "sasl.enabled.mechanisms is not set, and listener SASL_PLAINTEXT asks for a login" in broker.output()
    assert "sasl.enabled.mechanisms=SCRAM-SHA-512" in broker.output()
    assert "Traceback" not in broker.output()


def test_sigterm_ends_in_order_and_the_next_start_is_clean(kbroker_process: StartBroker) -> None:
    """Every restart would be a recovery."""
    broker = kbroker_process()
    assert broker.stop() == 0
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()
    broker.start()
    assert not (broker.data_dir / ".kafka_cleanshutdown").exists()
    assert broker.kill() == -9
    assert answers_api_versions(broker.start().port)


def test_a_second_broker_on_the_same_directory_is_refused(kbroker_process: StartBroker) -> None:
    """Two brokers would write the same files."""
    first = kbroker_process()
    second = kbroker_process({"log.dirs": str(first.data_dir)}, wait=False)
    second.spawn()
    assert second.wait() == 1
    assert "in use by another broker" in second.output()
    assert "Traceback" not in second.output()


@pytest.mark.parametrize("arguments", [[], ["--workers", "2"]], ids=["alone", "workers"])
def test_a_port_in_use_is_told_with_the_process_and_nothing_is_left_behind(
    kbroker_process: StartBroker, tmp_path: Path, arguments: list[str]
) -> None:
    """The user would have to guess who has the port, and the next start would find a directory of another cluster."""
    first = kbroker_process()
    data = tmp_path / "data"
    settings = (f"listeners=PLAINTEXT://127.0.0.1:{first.port}", f"log.dirs={data}", "metrics.listener=none")
    overrides = [word for each in settings for word in ("--override", each)]
    command = [sys.executable, "-m", "kbroker.cli", "start", *overrides, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 1
    assert f"process {first.process.pid} (" in done.stdout + done.stderr
    assert f"listens on port {first.port}: stop it, or name another port" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert not data.exists()


def test_a_refused_start_writes_nothing_into_another_brokers_directory(
    kbroker_process: StartBroker, tmp_path: Path
) -> None:
    """The right broker would start with the empty metadata store of the wrong one."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "kbroker.cli", "format", "--override", f"log.dirs={data}"]
    subprocess.run([*command, "--override", "node.id=5"], check=True, timeout=200, capture_output=True)
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    assert "meta.properties" in before
    broker = kbroker_process({"log.dirs": str(data), "node.id": "6"}, wait=False)
    broker.spawn()
    assert broker.wait() == 1
    assert "belongs to node 5, but this node is 6; set node.id=5" in broker.output()
    assert {path.name: path.read_bytes() for path in data.iterdir()} == before


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a directory of another user")
@pytest.mark.parametrize("below", ["", "data"])
def test_a_directory_that_its_owner_keeps_to_himself_is_named_with_its_owner(below: str) -> None:
    """A refusal of "workers: Permission denied" says neither whose the directory is nor what mends that."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder, "closed")
        closed.mkdir(mode=0o700)
        os.chown(closed, 1234, -1)
        wanted = closed / below
        config = BrokerConfig.from_mapping({"log.dirs": str(wanted)})
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            said = pool.submit(_refusal_as_another_user, config).result(timeout=200)
    assert f"log directory {wanted} " in said
    assert f"{closed} may not be {'searched' if below else 'written'} by user 65534: it belongs to user 1234" in said
    cure = f"sudo chmod a+x {closed} && sudo install -d -o 65534 {wanted}" if below else f"sudo chown -R 65534 {closed}"
    assert f"`{cure}`" in said


def _refusal_as_another_user(config: BrokerConfig) -> str:
    """What a start by the user 65534 says of the log directories."""
    os.setgroups([])
    os.setuid(65534)
    try:
        check_count(config, 1)
        open_directories(FileSystem(), config.log_dirs)
    except (WorkerSlotError, LogDirError) as error:
        return str(error)
    return ""


def test_warnings_and_settings_from_the_environment(kbroker_process: StartBroker) -> None:
    """A container could not be configured, or a typo would stay unnoticed."""
    broker = kbroker_process(
        {"num.partition": "3"}, environ={"KBROKER_LOG_FORMAT": "json", "KBROKER_NUM_IO_THREADS": "4"}
    )
    lines = [json.loads(line) for line in broker.output().splitlines()]
    text = broker.output()
    assert lines
    assert "did you mean num.partitions?" in text
    assert "num.io.threads (environment KBROKER_NUM_IO_THREADS) has no effect" in text
