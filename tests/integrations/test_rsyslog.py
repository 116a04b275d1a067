"""rsyslog with omkafka, as a process of its own with a configuration of its own."""

from __future__ import annotations

from pathlib import Path

from tests.broker_process import BrokerProcess
from tests.compat.installing import debian_folder
from tests.compat.waiting import wait_for
from tests.integrations.conftest import StartProgram
from tests.integrations.programs import HERE, append
from tests.integrations.topics import Reader, numbered

CONFIGURATION = """
global(workDirectory="{folder}" processInternalMessages="on")
module(load="imfile")
module(load="omkafka")
template(name="message" type="string" string="%msg%")
input(type="imfile" file="{file}" tag="application" ruleset="to-kafka")
ruleset(name="to-kafka") {{
  action(
    type="omkafka" broker=["{bootstrap}"] topic="logs" template="message" partitions.auto="on"
    confParam=["enable.idempotence=true"]
    resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="{folder}/failed"
    action.resumeRetryCount="-1" action.resumeInterval="1"
    queue.type="LinkedList" queue.filename="to-kafka" queue.saveOnShutdown="on"
  )
}}
action(type="omfile" file="{folder}/internal.log")
"""


def test_lines_of_a_log_go_on_though_broker_and_rsyslog_stop(
    broker: BrokerProcess, program: StartProgram, tmp_path: Path
) -> None:
    """A restart of the broker or of rsyslog would stop the lines of a log for good."""
    root = debian_folder(HERE / "debian" / "rsyslog.txt")
    broker.create_topic("logs")
    folder, file = tmp_path / "rsyslog", tmp_path / "application.log"
    folder.mkdir()
    file.touch()
    configuration, pid_file = folder / "rsyslog.conf", folder / "rsyslog.pid"
    configuration.write_text(CONFIGURATION.format(folder=folder, file=file, bootstrap=broker.bootstrap))
    (libraries,) = (root / "usr" / "lib").glob("*-linux-gnu")
    command = [str(root / "usr" / "sbin" / "rsyslogd"), "-n", "-f", str(configuration), "-i", str(pid_file)]
    daemon = program("rsyslog", [*command, "-M", str(libraries / "rsyslog")], {"LD_LIBRARY_PATH": str(libraries)})
    lines = numbered("line", 0, 5000)
    with Reader(broker.bootstrap, "logs") as reader:
        append(file, lines[:1000])
        reader.wait_for(500)
        append(file, lines[1000:2000])
        broker.restart()
        append(file, lines[2000:3000])
        reader.wait_for(2500)
        append(file, lines[3000:3500])
        broker.restart(kill=True)
        append(file, lines[3500:4000])
        # omkafka may lose a line while it is suspended, or send it twice.
        reader.wait_for(3900)
        assert daemon.stop() == 0
        daemon.start()
        append(file, lines[4000:])
        reader.wait_for_all(lines[4000:])
        assert set(reader.values) <= set(lines)
    wait_for(pid_file.exists, "the file with the process's id")
    assert daemon.stop() == 0
    assert not pid_file.exists()
