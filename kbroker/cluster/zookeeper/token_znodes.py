"""Delegation tokens in ZooKeeper, where Kafka's brokers have them: read at start, followed by their changes, and
written by any broker.

    /delegation_token/tokens/ID             {"owner":"User%3Abob","tokenRequester":"User%3Abob","renewers":[],
                                            "issueTimestamp":…,"maxTimestamp":…,"expiryTimestamp":…,"tokenId":"ID",
                                            "version":3}
    /delegation_token/token_changes/token_change_…    ID

HMACs are not there: every broker works them out with `delegation.token.secret.key`, which all have to share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from kbroker.cluster.zookeeper.entity_configs import sanitized
from kbroker.cluster.zookeeper.notifications import Notifications
from kbroker.cluster.zookeeper.reader import ZnodeReader
from kbroker.cluster.zookeeper.session import NodeExistsError, NoNodeError, ZooKeeper, ensure_path, set_or_create
from kbroker.cluster.zookeeper.znode_json import (
    ZnodeError,
    as_int,
    as_list,
    as_text,
    json_bytes,
    json_object,
)
from kbroker.metadata.image import MetadataDelta
from kbroker.metadata.security_image import DelegationToken, SecurityDelta

if TYPE_CHECKING:
    from kbroker.metadata.cache import MetadataCache

TOKENS, CHANGES = "/delegation_token/tokens", "/delegation_token/token_changes"
CHANGE_NAME = "token_change_"
VERSION = 3
_MOST_MS = 2**63 - 1


def encode_token(token: DelegationToken) -> bytes:
    """The content of a token's znode."""
    return json_bytes(
        {
            "version": VERSION,
            "owner": sanitized(token.owner),
            "tokenRequester": sanitized(token.requester),
            "renewers": [sanitized(each) for each in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(data: bytes | None) -> DelegationToken:
    """ZnodeError for what is none."""
    content = json_object(data)
    as_int(content.get("version"), "version", 1, VERSION)
    owner = _principal(as_text(content.get("owner"), "owner"))
    requester = content.get("tokenRequester")
    times = [
        as_int(content.get(name), name, 0, _MOST_MS) for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp")
    ]
    return DelegationToken(
        as_text(content.get("tokenId"), "tokenId"),
        owner,
        # Kafka before 3.3 has no requester besides the owner.
        owner if requester is None else _principal(as_text(requester, "tokenRequester")),
        tuple(_principal(as_text(each, "renewers")) for each in as_list(content.get("renewers"), "renewers")),
        *times,
    )


def _principal(text: str) -> str:
    principal = unquote(text)
    if ":" not in principal:
        raise ZnodeError("a principal without a type")
    return principal


def _id_of(data: bytes | None) -> str:
    try:
        token_id = (data or b"").decode()
    except UnicodeDecodeError:
        raise ZnodeError("no text") from None
    if not token_id or "/" in token_id:
        raise ZnodeError("no id of a token")
    return token_id


class TokenZnodes:
    """What ZooKeeper has of tokens, as this broker knows it by now.  `run` follows changes until it is cancelled."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._reader = ZnodeReader(zookeeper)
        self._cache: MetadataCache | None = None
        self._known: dict[str, DelegationToken] = {}
        self._notifications = Notifications(
            zookeeper, self._reader, CHANGES, _id_of, self._reload, "delegation tokens", self.read
        )

    def publish_to(self, cache: MetadataCache) -> None:
        """Let `cache` have what is read from now on."""
        self._cache = cache

    async def load(self) -> None:
        """Make what is missing of the tree, and read everything; may be done again."""
        for folder in (TOKENS, CHANGES):
            try:
                await ensure_path(self._zookeeper, folder)
            except NodeExistsError:
                continue
        await self._notifications.mark()
        await self.read()

    async def read(self) -> None:
        """Read everything, and make nothing."""
        for token_id in {*self._known, *await self._reader.children(TOKENS)}:
            await self._reload(token_id)

    @property
    def nonsense(self) -> Mapping[str, str]:
        """What makes no sense, by its path, and why."""
        return self._reader.nonsense

    async def run(self) -> None:
        """Follow notifications."""
        await self._notifications.run()

    async def _reload(self, token_id: str) -> None:
        found = await self._reader.read(f"{TOKENS}/{token_id}", decode_token)
        token = None if found is None else found[0]
        if token == self._known.get(token_id):
            return
        if token is None:
            del self._known[token_id]
        else:
            self._known[token_id] = token
        if self._cache is not None:
            self._cache.apply(MetadataDelta(security=SecurityDelta(tokens={token_id: token})))

    async def alter(self, changes: Mapping[str, DelegationToken | None]) -> None:
        """Write and delete tokens, and let all brokers know.  ZooKeeperError."""
        for token_id, token in changes.items():
            path = f"{TOKENS}/{token_id}"
            if token is None:
                try:
                    await self._zookeeper.delete(path)
                except NoNodeError:
                    pass
            else:
                await set_or_create(self._zookeeper, path, encode_token(token))
            await self._notifications.tell(CHANGE_NAME, token_id.encode())
            await self._reload(token_id)
