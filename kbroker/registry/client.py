"""The HTTP API of a schema registry: Confluent's, Karapace's, Apicurio's (`/apis/ccompat/v7`) and others' alike.

All of it waits; answers and references are bounded.  Redirects are not followed, as credentials would go along.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbroker.registry.errors import RegistryAwayError, SchemaError, UnknownSchemaError
from kbroker.registry.opener import direct_opener

if TYPE_CHECKING:
    import urllib.request

    from kbroker.registry.wire_format import SchemaName

ANSWER_SECONDS = 5.0
MOST_ANSWER_BYTES = 4 << 20
MOST_REFERENCES = 200
NOT_FOUND = 404
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
KINDS = (AVRO, PROTOBUF, JSON)


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema's text, of one of KINDS, and its references, by the names that it uses, in dependency order."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SubjectReference:
    """What a schema takes from another subject, by the name that it uses."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A schema as a version of a subject."""

    subject: str
    version: int
    schema_id: int
    kind: str
    text: str
    references: Sequence[SubjectReference]


@dataclass(frozen=True, slots=True)
class RegistryPlace:
    """Where a registry is: URLs of the same registry, of which the first that answers counts.

    `user_info` is `user:password`; `ca_file` a PEM of the authorities that are trusted, the system's without.
    """

    urls: tuple[str, ...]
    user_info: str = field(default="", repr=False)
    ca_file: str = ""


class Registry:
    """What a registry knows; used by any thread, keeps nothing."""

    def __init__(self, place: RegistryPlace) -> None:
        self._place = place
        self._opener: urllib.request.OpenerDirector | None = None

    def schema(self, name: SchemaName) -> Schema:
        """The schema of an id or a GUID, with its references.  SchemaError."""
        kind = "ids" if isinstance(name, int) else "guids"
        said = self._get(f"/schemas/{kind}/{name}", f"schema {name}")
        texts: dict[str, str] = {}
        self._gather(_references(said), texts)
        return Schema(_kind(said), _text(said), tuple(texts.items()))

    def has(self, schema_id: int) -> bool:
        """Whether there is a schema of that id.  RegistryAwayError."""
        try:
            self._get(f"/schemas/ids/{schema_id}", f"schema {schema_id}")
        except UnknownSchemaError:
            return False
        return True

    def subjects(self) -> list[str]:
        """All subjects, in order.  RegistryAwayError."""
        return sorted(str(each) for each in self._list("/subjects", "list of subjects"))

    def versions(self, subject: str) -> list[int]:
        """The versions of a subject, in order.  UnknownSchemaError, RegistryAwayError."""
        said = self._list(f"/subjects/{_quoted(subject)}/versions", f"subject {subject}")
        return sorted(each for each in said if isinstance(each, int))

    def version(self, subject: str, version: int | None = None) -> SubjectVersion:
        """A version of a subject, the latest without a number.  SchemaError."""
        wanted = "latest" if version is None else version
        said = self._get(f"/subjects/{_quoted(subject)}/versions/{wanted}", f"{subject} {wanted}")
        number, schema_id = said.get("version"), said.get("id")
        if not isinstance(number, int) or not isinstance(schema_id, int):
            raise SchemaError("the registry's answer has no version and id")
        references = [SubjectReference(*each) for each in _references(said)]
        return SubjectVersion(subject, number, schema_id, _kind(said), _text(said), references)

    def _gather(self, references: Sequence[tuple[str, str, int]], texts: dict[str, str]) -> None:
        """The texts of references, those that they need before them."""
        for name, subject, version in references:
            if name in texts:
                continue
            if len(texts) >= MOST_REFERENCES:
                raise SchemaError(f"a schema with more than {MOST_REFERENCES} references")
            said = self._get(f"/subjects/{_quoted(subject)}/versions/{version}", f"{subject} {version}")
            texts[name] = ""  # A circle ends here.
            self._gather(_references(said), texts)
            del texts[name]
            texts[name] = _text(said)

    def _get(self, path: str, what: str) -> Mapping[str, object]:
        said = self._ask(path, what, dict)
        assert isinstance(said, dict)
        return said

    def _list(self, path: str, what: str) -> Sequence[object]:
        said = self._ask(path, what, list)
        assert isinstance(said, list)
        return said

    def _ask(self, path: str, what: str, shape: type) -> object:
        reasons = []
        for url in self._place.urls:
            try:
                return self._ask_at(url, path, what, shape)
            except RegistryAwayError as error:
                reasons.append(str(error))
        raise RegistryAwayError("; ".join(reasons) or "no registry is set")

    def _ask_at(self, url: str, path: str, what: str, shape: type) -> object:
        # A broker that asks no registry does without these modules.
        import http.client
        import urllib.error

        if self._opener is None:
            self._opener = self._make_opener()
        try:
            with self._opener.open(url.rstrip("/") + path, timeout=ANSWER_SECONDS) as answer:
                body = answer.read(MOST_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == NOT_FOUND and _is_registry_error(error):
                    raise UnknownSchemaError(f"the registry at {url} has no {what}") from None
            raise RegistryAwayError(f"the registry at {url} answers with HTTP status {error.code}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise RegistryAwayError(f"the registry at {url}: {getattr(error, 'reason', error)}") from None
        if len(body) > MOST_ANSWER_BYTES:
            raise SchemaError(f"{what} of the registry at {url} has more than {MOST_ANSWER_BYTES} bytes")
        try:
            said = json.loads(body)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, shape):
            raise RegistryAwayError(f"what answers at {url} is no schema registry")
        return said

    def _make_opener(self) -> urllib.request.OpenerDirector:
        try:
            opener = direct_opener(self._place.ca_file)
        except OSError as error:
            raise SchemaError(f"{self._place.ca_file} holds no certificates that can be read: {error}") from None
        opener.addheaders = [("Accept", "application/vnd.schemaregistry.v1+json, application/json")]
        if self._place.user_info:
            encoded = base64.b64encode(self._place.user_info.encode()).decode()
            opener.addheaders.append(("Authorization", f"Basic {encoded}"))
        return opener


def _is_registry_error(error: urllib.error.HTTPError) -> bool:
    """Whether a 404 is a registry's, which says that there is no such schema, and not of a wrong address."""
    try:
        said = json.loads(error.read(MOST_ANSWER_BYTES))
        return isinstance(said, dict) and "error_code" in said and said["error_code"] != NOT_FOUND
    except (OSError, ValueError, RecursionError):
        return False


def _quoted(subject: str) -> str:
    from urllib.parse import quote

    return quote(subject, safe="")


def _kind(said: Mapping[str, object]) -> str:
    kind = said.get("schemaType", AVRO)
    if not isinstance(kind, str) or kind not in KINDS:
        raise SchemaError(f"schemas of type {kind!r} are not known here: {', '.join(KINDS)}")
    return kind


def _text(said: Mapping[str, object]) -> str:
    text = said.get("schema")
    if not isinstance(text, str):
        raise SchemaError("the registry's answer has no schema")
    return text


def _references(said: Mapping[str, object]) -> list[tuple[str, str, int]]:
    rows = said.get("references") or []
    if not isinstance(rows, list):
        raise SchemaError("the registry's answer has references that are no list")
    found = []
    for row in rows:
        if not isinstance(row, dict):
            raise SchemaError("the registry's answer has a reference that is no object")
        name, subject, version = row.get("name"), row.get("subject"), row.get("version")
        if not (isinstance(name, str) and isinstance(subject, str) and isinstance(version, int)):
            raise SchemaError("the registry's answer has a reference without name, subject and version")
        found.append((name, subject, version))
    return found
