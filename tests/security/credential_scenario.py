"""Requests about users and delegation tokens, and logins, that a broker answers as Apache Kafka does.

Both run the same scenario; answers are written down without what differs each time.  `vectors/credentials.json` has
Kafka's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kbroker.schemas import message
from kbroker.security.sasl.mechanism import Login
from kbroker.security.sasl.scram_client import ScramClient
from kbroker.security.scram import ScramMechanism, salted_password
from tests.scenarios.wire import build
from tests.security.sasl_broker import RawClient

FILE = Path(__file__).parent / "vectors" / "credentials.json"
SALT = b"salt of a test"
DAY = 86_400_000
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": "a secret of a test",
    "connection.failed.authentication.delay.ms": "1",
}
Dial = Callable[[], Awaitable[RawClient]]


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096, password: bytes = b"pw") -> dict[str, Any]:
    """A row of AlterUserScramCredentials."""
    kind = ScramMechanism.SCRAM_SHA_512 if mechanism == 2 else ScramMechanism.SCRAM_SHA_256
    salted = salted_password(kind, password, SALT, max(iterations, 1))
    return {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": SALT, "salted_password": salted}


def deletion(name: str, mechanism: int = 1) -> dict[str, Any]:
    """The same, to delete."""
    return {"name": name, "mechanism": mechanism}


ALTERATIONS: dict[str, dict[str, Any]] = {
    "two users": {"deletions": [], "upsertions": [upsertion("sam"), upsertion("tom", 2)]},
    "both mechanisms": {"deletions": [], "upsertions": [upsertion("ann"), upsertion("ann", 2, 8192)]},
    "one of them": {"deletions": [], "upsertions": [upsertion("ann")]},
    "the other": {"deletions": [], "upsertions": [upsertion("ann", 2, 8192)]},
    "another password": {"deletions": [], "upsertions": [upsertion("sam", 1, 4096, b"new")]},
    "too few": {"deletions": [], "upsertions": [upsertion("low", 1, 4095)]},
    "too many": {"deletions": [], "upsertions": [upsertion("high", 1, 16385)]},
    "the most": {"deletions": [], "upsertions": [upsertion("most", 1, 16384)]},
    "no name": {"deletions": [], "upsertions": [upsertion("")]},
    "no mechanism": {"deletions": [], "upsertions": [upsertion("sam", 0)]},
    "a mechanism of the future": {"deletions": [deletion("sam", 3)], "upsertions": []},
    "nobody goes": {"deletions": [deletion("nobody"), deletion("sam", 2), deletion("")], "upsertions": []},
    "twice set": {"deletions": [], "upsertions": [upsertion("tom"), upsertion("tom")]},
    "twice deleted": {"deletions": [deletion("tom", 2), deletion("tom", 2)], "upsertions": []},
    "deleted and set": {"deletions": [deletion("tom", 2)], "upsertions": [upsertion("tom", 2)]},
    "one good one bad": {"deletions": [], "upsertions": [upsertion("eve"), upsertion("eve", 2, 1)]},
    "one bad one good": {"deletions": [], "upsertions": [upsertion("eve", 2, 1), upsertion("eve")]},
    "good beside bad": {"deletions": [deletion("nobody")], "upsertions": [upsertion("bob")]},
    "one goes another comes": {"deletions": [deletion("bob")], "upsertions": [upsertion("eva", 2)]},
    "other mechanism goes": {"deletions": [deletion("ann", 2)], "upsertions": [upsertion("ann", 1, 5000)]},
    "nothing": {"deletions": [], "upsertions": []},
    "salted to nothing": {"deletions": [], "upsertions": [{**upsertion("nil"), "salted_password": b""}]},
    "salted to nothing beside a good one": {
        "deletions": [deletion("nobody")],
        "upsertions": [upsertion("kim"), {**upsertion("nil"), "salted_password": b""}],
    },
    "salted to nothing without a mechanism": {
        "deletions": [],
        "upsertions": [{**upsertion("nil", 0), "salted_password": b""}],
    },
    "salted to nothing too few times": {
        "deletions": [],
        "upsertions": [{**upsertion("nil", 1, 1), "salted_password": b""}],
    },
    "salted to one byte": {"deletions": [], "upsertions": [{**upsertion("one"), "salted_password": b"x"}]},
    "no salt": {"deletions": [], "upsertions": [{**upsertion("fresh"), "salt": b""}]},
    "a name beyond ASCII": {"deletions": [], "upsertions": [upsertion("jos\u00e9")]},
    "a name of a star": {"deletions": [], "upsertions": [upsertion("*")]},
    "a name with a comma": {"deletions": [], "upsertions": [upsertion("a,b=c")]},
    "a name of control characters": {"deletions": [], "upsertions": [upsertion("\x01\n\x7f")]},
}
DESCRIPTIONS: dict[str, Any] = {
    "all": None,
    "none": [],
    "one": [{"name": "sam"}],
    "twice": [{"name": "sam"}, {"name": "ann"}, {"name": "sam"}],
    "nobody": [{"name": "nobody"}, {"name": ""}],
}
NO_OWNER = {"owner_principal_type": None, "owner_principal_name": None}
CREATIONS: dict[str, dict[str, Any]] = {
    "own": {**NO_OWNER, "renewers": [], "max_lifetime_ms": -1},
    "with renewers": {
        **NO_OWNER,
        "renewers": [{"principal_type": "User", "principal_name": name} for name in ("alice", "bob")],
        "max_lifetime_ms": 3 * DAY,
    },
    "short": {**NO_OWNER, "renewers": [], "max_lifetime_ms": 60_000},
    "longer than may be": {**NO_OWNER, "renewers": [], "max_lifetime_ms": 100 * DAY},
    "no time": {**NO_OWNER, "renewers": [], "max_lifetime_ms": 0},
    "of a group": {
        **NO_OWNER,
        "renewers": [{"principal_type": "Group", "principal_name": "g"}],
        "max_lifetime_ms": -1,
    },
    "of another": {
        "owner_principal_type": "User",
        "owner_principal_name": "carol",
        "renewers": [],
        "max_lifetime_ms": -1,
    },
}


async def scenario(dial: Dial, dial_plain: Dial) -> dict[str, Any]:
    """All answers by name.  `dial` connects to a listener with SASL, `dial_plain` to one without."""
    found: dict[str, Any] = {}
    await _users(dial, found)
    await _logins(dial, found)
    await _first_messages(dial, found)
    await _orders(dial, found)
    await _tokens(dial, dial_plain, found)
    await _periods(dial, found)
    return found


async def _logged_in(dial: Dial, name: str = "admin") -> RawClient:
    client = await dial()
    assert (await client.log_in(name)).error_code == 0
    return client


async def _ask(client: RawClient, api: str, version: int, values: dict[str, Any]) -> Any:
    request = build(message(f"{api}Request"), values)
    names = [field.name for field in type(request).schema.fields]
    return await client.ask(api, version, **{name: getattr(request, name) for name in names if hasattr(request, name)})


async def _users(dial: Dial, found: dict[str, Any]) -> None:
    client = await _logged_in(dial)

    async def describe(when: str) -> None:
        for name, users in DESCRIPTIONS.items():
            answer = await _ask(client, "DescribeUserScramCredentials", 0, {"users": users})
            found[f"describe {name} {when}"] = [
                answer.error_code,
                answer.error_message,
                sorted(
                    [
                        row.user,
                        row.error_code,
                        row.error_message,
                        sorted([info.mechanism, info.iterations] for info in row.credential_infos),
                    ]
                    for row in answer.results
                ),
            ]

    await describe("before")
    for name, values in ALTERATIONS.items():
        answer = await _ask(client, "AlterUserScramCredentials", 0, values)
        rows = [[row.user, row.error_code, row.error_message] for row in answer.results]
        found[f"alter: {name}"] = sorted(rows, key=json.dumps)
    await describe("after")


async def _logins(dial: Dial, found: dict[str, Any]) -> None:
    """SASL itself: answers, and whether the connection is there afterwards."""

    async def closed(client: RawClient) -> bool:
        return await client.token() is None

    for name, token in {
        "good": b"\0alice\0alice-pw",
        "wrong password": b"\0alice\0x",
        "no such user": b"\0nobody\0x",
        "two parts": b"alice\0x",
        "five parts": b"\0alice\0x\0\0",
        "no name": b"\0\0x",
        "no password": b"\0alice\0",
        "another": b"bob\0alice\0alice-pw",
        "empty": b"",
    }.items():
        for version in (0, 1, 2):
            client = await dial()
            await client.handshake("PLAIN")
            answer = await client.authenticate(token, version)
            said = [answer.error_code, answer.error_message, len(answer.auth_bytes)]
            found[f"plain {name} v{version}"] = [*said, answer.error_code and await closed(client)]
    for mechanism in ScramMechanism:
        for name, password in (("ann", "pw"), ("ann", "x"), ("sam", "new"), ("nobody", "x")):
            client = await dial()
            await client.handshake(mechanism.sasl_name)
            login = ScramClient(mechanism, Login(name, password))
            answer = await client.authenticate(login.first())
            if answer.error_code == 0:
                proof = login.evaluate(answer.auth_bytes)
                answer = await client.authenticate(proof or b"")
            found[f"{mechanism.sasl_name} {name} {password}"] = [answer.error_code, answer.error_message]
    client = await dial()
    answer = await client.ask("SaslHandshake", 1, mechanism="NONE")
    found["no mechanism"] = [answer.error_code, sorted(answer.mechanisms), await closed(client)]
    client = await dial()
    await client.handshake("PLAIN")
    answer = await client.ask("SaslHandshake", 1, mechanism="PLAIN")
    found["two handshakes"] = [answer.error_code, answer.mechanisms, await closed(client)]
    client = await dial()
    found["a token first"] = await client.authenticate(b"\0alice\0alice-pw")
    client = await dial()
    found["metadata first"] = await client.ask("Metadata", 1, topics=None)
    client = await _logged_in(dial)
    answer = await client.authenticate(b"\0alice\0alice-pw")
    found["a token afterwards"] = [answer.error_code, answer.error_message]
    answer = await client.ask("SaslHandshake", 1, mechanism="PLAIN")
    found["a handshake afterwards"] = [answer.error_code, answer.mechanisms]
    found["and still there"] = bool((await client.ask("Metadata", 1, topics=None)).brokers)


FIRST_MESSAGES = {
    "plain": b"n,,n=sam,r=nonce",
    "a name beyond ASCII": "n,,n=jos\u00e9,r=nonce".encode(),
    "bytes that are no text": b"n,,n=jos\xe9,r=nonce",
    "a name of a star": b"n,,n=*,r=nonce",
    "a name with escapes": b"n,,n=a=2Cb=3Dc,r=nonce",
    "a name with another escape": b"n,,n=a=2Db,r=nonce",
    "a name with a comma": b"n,,n=a,b,r=nonce",
    "no name": b"n,,n=,r=nonce",
    "a name of control characters": b"n,,n=\x01\n\x7f,r=nonce",
    "a zero byte in the name": b"n,,n=a\0b,r=nonce",
    "an authorization beyond ASCII": "n,a=jos\u00e9,n=sam,r=nonce".encode(),
    "the same authorization": b"n,a=sam,n=sam,r=nonce",
    "a reserved part": b"n,,m=x,n=sam,r=nonce",
    "a reserved part beyond ASCII": "n,,m=\u00e9,n=sam,r=nonce".encode(),
    "an extension": b"n,,n=sam,r=nonce,ext=value",
    "an extension beyond ASCII": "n,,n=sam,r=nonce,ext=\u00e9".encode(),
    "an extension of nothing": b"n,,n=sam,r=nonce,ext=",
    "a nonce beyond ASCII": "n,,n=sam,r=nonc\u00e9".encode(),
    "a nonce with a space": b"n,,n=sam,r=no nce",
    "a line's end": b"n,,n=sam,r=nonce\n",
    "channel binding offered": b"y,,n=sam,r=nonce",
    "channel binding": b"p=tls-unique,,n=sam,r=nonce",
}


async def _first_messages(dial: Dial, found: dict[str, Any]) -> None:
    """SCRAM's first message, of users that there are; its answer begins with the client's nonce."""
    for name, token in FIRST_MESSAGES.items():
        client = await dial()
        await client.handshake("SCRAM-SHA-256")
        answer = await client.authenticate(token)
        goes_on = bytes(answer.auth_bytes).startswith(b"r=nonce")
        found[f"first message: {name}"] = [answer.error_code, answer.error_message, goes_on]


async def _orders(dial: Dial, found: dict[str, Any]) -> None:
    """What may follow what before a client has authenticated: the code of each answer, None at a connection's end."""
    for words in (
        ("versions", "versions"),
        ("versions", "versions", "handshake"),
        ("versions", "handshake", "token"),
        ("versions", "handshake", "versions"),
        ("handshake", "versions"),
        ("handshake", "versions", "token"),
        ("handshake", "handshake"),
        ("versions of the future", "versions", "handshake", "token"),
        ("versions of the future", "versions of the future", "versions"),
        ("versions", "versions of the future"),
        ("no software", "versions", "handshake", "token"),
        ("versions", "no software"),
        ("versions", "metadata"),
        ("versions", "token"),
        ("versions", "handshake", "token", "versions", "versions", "metadata"),
    ):
        client = await dial()
        said: list[Any] = []
        for word in words:
            said.append(await _order(client, word))
            if said[-1] is None:
                break
        found[f"order: {', '.join(words)}"] = said


async def _order(client: RawClient, word: str) -> Any:
    if word == "versions of the future":
        frame = client.frame("ApiVersions", 3, client_software_name="test", client_software_version="1")
        client.writer.write(frame[:6] + (99).to_bytes(2, "big") + frame[8:])
        answer = await client.answer("ApiVersions", 0)
    elif word == "versions":
        answer = await client.ask("ApiVersions", 3, client_software_name="test", client_software_version="1")
    elif word == "no software":
        answer = await client.ask("ApiVersions", 3, client_software_name="", client_software_version="1")
    elif word == "handshake":
        answer = await client.ask("SaslHandshake", 1, mechanism="PLAIN")
    elif word == "token":
        answer = await client.authenticate(b"\0alice\0alice-pw")
    else:
        answer = await client.ask("Metadata", 1, topics=None)
        return None if answer is None else 0
    return None if answer is None else answer.error_code


LEAST, MOST = -(1 << 63), (1 << 63) - 1
PERIODS = (LEAST, -2, -1, 0, 1, 60_000, DAY - 1, DAY, DAY + 1, 7 * DAY, 30 * DAY, 3_000_000 * DAY, MOST)


PERIOD_FIELDS = {"Renew": "renew_period_ms", "Expire": "expiry_time_period_ms"}


async def _periods(dial: Dial, found: dict[str, Any]) -> None:
    """Lifetimes of new tokens, and periods by which they are renewed or made to end: times from then on in minutes."""
    admin = await _logged_in(dial)

    async def new(lifetime_ms: int) -> Any:
        values = {**NO_OWNER, "renewers": [], "max_lifetime_ms": lifetime_ms}
        made = await _ask(admin, "CreateDelegationToken", 3, values)
        while made.token_id not in await ids():
            """Kafka's controller hears of it a little later."""
        return made

    async def ids() -> set[str]:
        answer = await _ask(admin, "DescribeDelegationToken", 3, {"owners": None})
        return {row.token_id for row in answer.tokens}

    async def end(made: Any) -> None:
        await _ask(admin, "ExpireDelegationToken", 2, {"hmac": made.hmac, "expiry_time_period_ms": -1})

    for period in PERIODS:
        made = await new(period)
        lives = [made.expiry_timestamp_ms, made.max_timestamp_ms]
        minutes = [round((until - made.issue_timestamp_ms) / 60_000) for until in lives]
        found[f"a token's life of {period}"] = [made.error_code, *minutes]
        await end(made)
        for api, field in PERIOD_FIELDS.items():
            for kind, lifetime_ms in {"an hour": 3_600_000, "a week": -1}.items():
                made = await new(lifetime_ms)
                answer = await _ask(admin, f"{api}DelegationToken", 2, {"hmac": made.hmac, field: period})
                until = answer.expiry_timestamp_ms
                later = "before 1970" if until < 0 else round((until - made.issue_timestamp_ms) / 60_000)
                found[f"{api} a token of {kind} by {period}"] = [answer.error_code, later]
                await end(made)


async def _tokens(dial: Dial, dial_plain: Dial, found: dict[str, Any]) -> None:
    admin, alice, bob = [await _logged_in(dial, name) for name in ("admin", "alice", "bob")]
    shown: dict[str, bytes] = {}
    ids: dict[str, str] = {}
    begins: dict[str, int] = {}

    def lived(name: str, until: int) -> int:
        """Since its creation; to the minute, as the broker takes its time."""
        return until if until <= 0 else round((until - begins[name]) / 60_000)

    for name, values in CREATIONS.items():
        answer = await _ask(admin, "CreateDelegationToken", 3, values)
        begins[name] = answer.issue_timestamp_ms
        shown[name], ids[name] = bytes(answer.hmac), answer.token_id
        found[f"create {name}"] = [
            answer.error_code,
            [answer.principal_type, answer.principal_name],
            [answer.token_requester_principal_type, answer.token_requester_principal_name],
            lived(name, answer.expiry_timestamp_ms),
            lived(name, answer.max_timestamp_ms),
            len(answer.token_id),
            len(answer.hmac),
        ]

    async def settled(name: str, minutes: int | None) -> None:
        """Kafka's brokers hear of changes a little later."""
        while True:
            answer = await _ask(admin, "DescribeDelegationToken", 3, {"owners": None})
            found_ids = {row.token_id: row.expiry_timestamp for row in answer.tokens}
            until = found_ids.get(ids[name])
            if (None if until is None else lived(name, until)) == minutes:
                return

    await settled("of another", 24 * 60)

    async def change(client: RawClient, api: str, name: str, period: int, hmac: bytes | None = None) -> list[Any]:
        field = "renew_period_ms" if api.startswith("Renew") else "expiry_time_period_ms"
        answer = await _ask(client, api, 2, {"hmac": shown[name] if hmac is None else hmac, field: period})
        return [answer.error_code, lived(name, answer.expiry_timestamp_ms)]

    for api in ("RenewDelegationToken", "ExpireDelegationToken"):
        found[f"{api} for a while"] = await change(admin, api, "own", 2 * DAY)
        found[f"{api} for ever"] = await change(admin, api, "own", 1000 * DAY)
        found[f"{api} of nobody"] = await change(admin, api, "own", DAY, b"wrong")
        found[f"{api} by a renewer"] = await change(bob, api, "with renewers", DAY)
        found[f"{api} by another"] = await change(bob, api, "own", DAY)
    found["renew as usual"] = await change(admin, "RenewDelegationToken", "short", -1)
    found["renew by who asked"] = await change(admin, "RenewDelegationToken", "of another", DAY)

    def described(answer: Any) -> Any:
        names = {token_id: name for name, token_id in ids.items()}
        rows = [
            [
                names[row.token_id],
                row.principal_name,
                row.token_requester_principal_name,
                lived(names[row.token_id], row.expiry_timestamp),
                lived(names[row.token_id], row.max_timestamp),
                bytes(row.hmac) == shown[names[row.token_id]],
                [each.principal_name for each in row.renewers],
            ]
            for row in answer.tokens
        ]
        return [answer.error_code, sorted(rows)]

    await settled("own", 7 * 24 * 60)
    await settled("of another", 24 * 60)
    for who, client in (("admin", admin), ("alice", alice)):
        for name, owners in {
            "all": None,
            "none": [],
            "of admin": [{"principal_type": "User", "principal_name": "admin"}],
            "of bob": [{"principal_type": "User", "principal_name": "bob"}],
            "of nobody": [{"principal_type": "User", "principal_name": "nobody"}],
        }.items():
            found[f"{who} describes {name}"] = described(
                await _ask(client, "DescribeDelegationToken", 3, {"owners": owners})
            )
    await _with_token(dial, ids["own"], shown["own"], found)
    anonymous = await dial_plain()
    await _refused("anonymous", anonymous, found)
    found["expire now"] = (await change(admin, "ExpireDelegationToken", "own", -1))[0]
    await settled("own", None)
    found["expired"] = await change(admin, "RenewDelegationToken", "own", DAY)
    found["what is left"] = described(await _ask(admin, "DescribeDelegationToken", 3, {"owners": None}))


async def _with_token(dial: Dial, token_id: str, shown: bytes, found: dict[str, Any]) -> None:
    for name, login in {
        "token": Login(token_id, base64.b64encode(shown).decode(), by_token=True),
        "token of nobody": Login("nobody", base64.b64encode(shown).decode(), by_token=True),
        "wrong token": Login(token_id, "wrong", by_token=True),
        "token without its extension": Login(token_id, base64.b64encode(shown).decode()),
    }.items():
        client = await dial()
        await client.handshake("SCRAM-SHA-256")
        machine = ScramClient(ScramMechanism.SCRAM_SHA_256, login)
        answer = await client.authenticate(machine.first())
        if answer.error_code == 0:
            proof = machine.evaluate(answer.auth_bytes)
            answer = await client.authenticate(proof or b"")
        lives = answer.session_lifetime_ms
        found[f"login: {name}"] = [answer.error_code, answer.error_message, round(lives / 600_000)]
        if answer.error_code == 0:
            await _refused("by token", client, found)


async def _refused(who: str, client: RawClient, found: dict[str, Any]) -> None:
    for api, values in {
        "CreateDelegationToken": CREATIONS["own"],
        "RenewDelegationToken": {"hmac": b"x", "renew_period_ms": 1},
        "ExpireDelegationToken": {"hmac": b"x", "expiry_time_period_ms": 1},
        "DescribeDelegationToken": {"owners": None},
    }.items():
        answer = await _ask(client, api, 2, {k: v for k, v in values.items() if not k.startswith("owner_")})
        found[f"{who}: {api}"] = answer.error_code
