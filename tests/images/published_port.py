"""`python -m tests.images.published_port FOLDER POLICY`: a container on a bridge, whose metrics listener is published.

As an engine does it: the container has an address of a network that a bridge of the host's is the gateway of, beside
another container; a proxy on the host's loopback takes connections to the published port to it.  Prints as JSON what a
viewer on the host and one in the other container are shown.  In namespaces of its own (`bare_root.isolated`).
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.images.bare_root import Container, Plan, round_trip, run

GATEWAY, BROKER, OTHER = "172.28.0.1", "172.28.0.2", "172.28.0.3"
PORT = 9644
ASK = """
import json, sys, urllib.error, urllib.request
url, host = sys.argv[1:]
request = urllib.request.Request(url, headers={"Host": host})
try:
    with urllib.request.urlopen(request, timeout=10) as answer:
        print(json.dumps([answer.status, json.loads(answer.read())]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, json.loads(error.read())]))
"""


@contextmanager
def network(number: int, address: str) -> Iterator[list[str]]:
    """A network of one container, on the bridge; yields what leads into it."""
    with subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        # Its answer says that it is in the new network.
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        holder.stdout.read(1)
        inside = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
        run("ip", "link", "add", f"host{number}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        run("ip", "link", "set", f"host{number}", "master", "engine", "up")
        for words in (
            ("address", "add", f"{address}/16", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
            ("route", "add", "default", "via", GATEWAY),
        ):
            run(*inside, "ip", *words)
        yield inside
        holder.stdin.close()


def publish() -> None:
    """Takes connections to the host's loopback into the container, as an engine's proxy does; in a thread, for good."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(BROKER, PORT)
        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(take, sock=listening)
        await server.serve_forever()

    listening = socket.create_server(("127.0.0.1", PORT))
    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()


def ask(prefix: list[str], address: str, host: str) -> object:
    """What a viewer is shown of a topic's records: (status, JSON)."""
    url = f"http://{address}:{PORT}/console/api/messages?topic=orders&from=oldest"
    done = subprocess.run([*prefix, sys.executable, "-c", ASK, url, host], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main(folder: str, policy: str) -> None:
    """Plays it."""
    environment = {
        "KAFKA_LISTENERS": "PLAINTEXT://:9092",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{BROKER}:9092",
        **({"KBROKER_CONSOLE_MESSAGES": policy} if policy else {}),
    }
    container = Container(Plan(folder, "kafka", environment))
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "engine", "type", "bridge")
    run("ip", "address", "add", f"{GATEWAY}/16", "dev", "engine")
    run("ip", "link", "set", "engine", "up")
    with ExitStack() as ended:
        container.prefix = ended.enter_context(network(1, BROKER))
        other = ended.enter_context(network(2, OTHER))
        container.build()
        container.mount()
        container.name_hosts()
        container.start()
        container.wait()
        publish()
        round_trip(f"{BROKER}:9092", {}, "orders", groups=False)
        print(
            json.dumps(
                {
                    "host": ask([], "127.0.0.1", f"localhost:{PORT}"),
                    "host by another name": ask([], BROKER, f"{BROKER}:{PORT}"),
                    "other container": ask(other, BROKER, f"localhost:{PORT}"),
                }
            )
        )
        container.stop()


if __name__ == "__main__":
    main(str(Path(sys.argv[1])), sys.argv[2])
