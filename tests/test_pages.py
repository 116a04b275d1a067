"""The commands of the guides in docs/, run as they stand there, in their order, against a broker on its usual ports.
Those of operations.md are run by `cli/test_operations_page.py`.

What a page takes for granted (a topic, a group, a file) is made first.  Of the pages about Spark, which are slow,
Python is run as well, and a command that goes on for ever is interrupted.  Blocks of another kind are shown to the
reader, and not run; `NOT_RUN` says why.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kbroker
from tests.readme import PROGRAM, launcher, program
from tests.tools import require_tool

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)

START = """
cat > server.properties <<'END'
log.dirs=data
END
kbroker start server.properties > broker.log 2>&1 &
until kbroker topics list > list.log 2>&1; do sleep 0.1; kill -0 $!; done
kbroker topics create orders -p 2 -c cleanup.policy=compact
printf 'alice:1 book\\nbob:2 pens\\n' | kbroker produce orders --key-separator :
kbroker consume orders --from-beginning --exit-at-end --group readers
"""

#: What each page takes for granted.
BEFORE = {
    "backup.md": START,
    "cluster.md": """
cat > controller.properties <<'END'
process.roles=controller
node.id=3001
controller.quorum.bootstrap.servers=127.0.0.1:9093
listeners=CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs=data
END
sed 's/data/first/' controller.properties > first.properties
sed 's/data/new/; s/3001/3004/' controller.properties > new.properties
""",
    "command-line.md": START,
    "quickstart.md": START,
    "schemas.md": START
    + """
python -m tests.registry.stand_in 8081 orders-value '"string"' &
until (: < /dev/tcp/127.0.0.1/8081) 2> /dev/null; do sleep 0.1; kill -0 $!; done
echo '"string"' > order.avsc
printf 'carol:\\000\\000\\000\\000\\001\\010book\n' | kbroker produce orders --key-separator :
""",
    "security.md": "",
}


OF_SPARK = {
    "load.md": START
    + """
cat > second.properties <<'END'
log.dirs=second
listeners=PLAINTEXT://127.0.0.1:9192
metrics.listener=none
END
kbroker start second.properties > second.log 2>&1 &
until kbroker topics list -b 127.0.0.1:9192 > list.log 2>&1; do sleep 0.1; kill -0 $!; done
kbroker topics create payments
echo 'one' | kbroker produce payments
python -c '
import pyarrow as pa, pyarrow.parquet as pq
pq.write_table(pa.table({"key": [b"k"], "value": [b"v"]}), "any.parquet")'
""",
    "replay.md": START
    + """
printf '%s\\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:15:46.6805900,374,44' \\
  '2023-11-16 18:15:50.9951690,396,109' > trace.csv
echo '1.1.1.1 - - [10/Oct/2000:13:55:36 -0700] "GET / HTTP/1.0" 200 2' > access.log
""",
    "spark.md": START,
}
PYTHON = """
python - <<'END-OF-BLOCK'
from kbroker.replay.session import spark_session
with spark_session("page") as spark:
    frame = spark.createDataFrame([(1, "book")], "id int, what string")
{}
END-OF-BLOCK
"""
FOR_EVER = re.compile(r"^(kbroker .* --follow)$", re.MULTILINE)

#: Pages with other commands than those that run here or in the files named, and why these are not run.
NOT_RUN = {
    "quickstart.md": "a service: package/test_bare_machine.py; a container needs a daemon",
    "migration.md": "needs Apache Kafka's directories: migration/test_import.py",
    "iceberg.md": "needs Spark 4.1: replay/test_iceberg.py",
    "upgrade.md": "git pull, and a restart by systemd",
    "performance.md": "hours; bench/test_harness.py holds the arguments against what the benchmark takes",
    "benchmarks/replay/README.md": "traces of others, gigabytes",
    "operations.md": "cli/test_operations_page.py; the text and YAML are configurations, metrics/test_monitoring.py",
    "testing.md": "testing/test_examples.py",
    "../CONTRIBUTING.md": "the tests themselves",
}


def blocks(page: str) -> list[str]:
    """The page's commands."""
    return BLOCK.findall((DOCS / page).read_text())


def spark_blocks(page: str) -> list[str]:
    """The page's commands and its Python, as bash."""
    found = re.findall(r"^```(sh|python)\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    return [
        PYTHON.format("".join(f"    {line}\n" if line else "\n" for line in text.splitlines())).replace(
            "/var/lib/kafka/data", "data"
        )
        if kind == "python"
        else FOR_EVER.sub(r"timeout --signal INT 60 \1 || [ $? = 124 ]", text)
        for kind, text in found
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", BEFORE)
def test_a_pages_commands_do_what_they_say(page: str, tmp_path: Path) -> None:
    """Somebody with a full disk at night would be given a command that does not work."""
    follow(BEFORE[page], blocks(page), tmp_path, 570)


def test_keys_and_passwords_of_the_security_page_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Every user of the machine would read the broker's key and the administrator's password."""
    require_tool("openssl")
    # Each block is run in a shell of its own, as by a reader who goes on in another terminal; no broker is needed.
    before = "set -eu\numask 022\nkbroker() { :; }\ncurl() { echo DESCRIBE; }\n"
    for block in blocks("security.md"):
        subprocess.run(["bash", "-c", before + block], cwd=tmp_path, check=True, timeout=100, capture_output=True)
    secrets = [*tmp_path.rglob("*.key"), tmp_path / "tls" / "broker.pem", *tmp_path.glob("*.properties")]
    assert {path.name for path in secrets} >= {"ca.key", "broker.key", "admin.properties", "alice.properties"}
    assert {path.name for path in secrets if path.stat().st_mode & 0o077} == set()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1300)
@pytest.mark.parametrize("page", OF_SPARK)
def test_the_commands_of_pages_about_spark_do_what_they_say(page: str, tmp_path: Path) -> None:
    """The same, for what takes Spark's time."""
    pytest.importorskip("pyspark")
    require_tool("java")
    follow(OF_SPARK[page], spark_blocks(page), tmp_path, 1200)


def test_each_page_with_commands_is_run_or_says_why_not() -> None:
    """A new page's commands would be read by users alone."""
    kinds = re.compile(r"^```(?:sh|console|text|python)$", re.MULTILINE)
    pages = [*DOCS.rglob("*.md"), DOCS.parent / "CONTRIBUTING.md"]
    with_commands = {os.path.relpath(page, DOCS) for page in pages if kinds.search(page.read_text())}
    assert with_commands == {*BEFORE, *OF_SPARK, *NOT_RUN}


def follow(before: str, commands: list[str], tmp_path: Path, seconds: float) -> None:
    """Runs commands after what they take for granted, in a directory of their own."""
    for tool in ("curl", "openssl"):
        if any(f"{tool} " in text for text in commands):
            require_tool(tool)
    parts = [
        "set -e -o pipefail",
        "if ip link set lo up 2> /dev/null; then :; fi",
        "trap 'kill $(jobs -p) 2> /dev/null || :' EXIT",
    ]
    parts.append(before)
    for number, text in enumerate(commands):
        parts += [f"echo '== block {number}'", text]
    parts.append("echo '== all blocks are done'")
    program(tmp_path / "bin" / "python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program(tmp_path / "bin" / "kbroker", PROGRAM.format(python=sys.executable, module="kbroker.cli"))
    (tmp_path / "page.sh").write_text("\n".join(parts))
    environ = {key: value for key, value in os.environ.items() if not key.startswith("KBROKER_")}
    environ |= {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PATH": f"{tmp_path / 'bin'}:{environ['PATH']}",
        "PYTHONPATH": str(Path(kbroker.__file__).parents[1]),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    command = [*launcher(), "bash", "page.sh"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=seconds, check=False
    )
    log = tmp_path / "broker.log"
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}\n{log.read_text() if log.exists() else ''}"
    assert ran.stdout.endswith("== all blocks are done\n")
