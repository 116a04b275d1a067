"""Key and trust stores by the names that the container images have for them.

KAFKA_SSL_KEYSTORE_FILENAME, KAFKA_SSL_TRUSTSTORE_FILENAME        files in /etc/kafka/secrets
KAFKA_SSL_KEYSTORE_CREDENTIALS, KAFKA_SSL_KEY_CREDENTIALS, …      files there that hold a password
KAFKA_TLS_TYPE, KAFKA_CERTIFICATE_PASSWORD, KAFKA_TLS_CLIENT_AUTH bitnami's, of files by fixed names in config/certs
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from kbroker.config.images.directories import BITNAMI_CERTIFICATES, SECRETS
from kbroker.config.images.listeners import Given, Settings, client_listeners
from kbroker.config.images.names import ImageError
from kbroker.config.images.values import written
from kbroker.config.properties import PropertiesError

FILES: Mapping[str, str] = MappingProxyType(
    {"KAFKA_SSL_KEYSTORE_FILENAME": "ssl.keystore.location", "KAFKA_SSL_TRUSTSTORE_FILENAME": "ssl.truststore.location"}
)
PASSWORDS: Mapping[str, str] = MappingProxyType(
    {
        "KAFKA_SSL_KEYSTORE_CREDENTIALS": "ssl.keystore.password",
        "KAFKA_SSL_KEY_CREDENTIALS": "ssl.key.password",
        "KAFKA_SSL_TRUSTSTORE_CREDENTIALS": "ssl.truststore.password",
    }
)
_TYPE, _PASSWORD, _CLIENT_AUTH, _TRUST = (
    "KAFKA_TLS_TYPE",
    "KAFKA_CERTIFICATE_PASSWORD",
    "KAFKA_TLS_CLIENT_AUTH",
    "KAFKA_TLS_TRUSTSTORE_FILE",
)
OF_BITNAMI = frozenset({_TYPE, _PASSWORD, _CLIENT_AUTH, _TRUST})


def is_of_a_store(name: str) -> bool:
    """Whether a variable is one that this module takes."""
    return name in FILES or name in PASSWORDS or name in OF_BITNAMI or _is_client_auth_of_listener(name)


def _is_client_auth_of_listener(name: str) -> bool:
    return name.startswith("KAFKA_TLS_") and name.endswith("_CLIENT_AUTH")


def take_stores(settings: Settings, taken: Mapping[str, Given], root: Path) -> None:
    """The settings behind names of files and of files with passwords.  ImageError where a file is not there."""
    for name, key in FILES.items():
        if name in taken:
            path = SECRETS / taken[name].text.strip()
            if not (root / path.relative_to("/")).exists():
                raise ImageError(f"environment {name}: there is no {path}")
            settings[key] = Given(str(path), taken[name].origin)
    for name, key in PASSWORDS.items():
        if name in taken:
            text = _read(SECRETS / taken[name].text.strip(), f"environment {name}", root)
            try:
                settings[key] = Given(written(text).text, taken[name].origin)
            except PropertiesError as error:
                raise ImageError(f"{taken[name].origin}: {error}") from None


def take_bitnamis_stores(settings: Settings, taken: Mapping[str, Given], root: Path) -> None:
    """bitnami's certificates, where a listener has TLS.  ImageError where they are not there."""
    secured = [each for each in client_listeners(settings) if each.protocol in ("SSL", "SASL_SSL")]
    if not secured:
        if unused := sorted(name for name in taken if name in OF_BITNAMI or _is_client_auth_of_listener(name)):
            raise ImageError(
                f"environment {', '.join(unused)}: no listener has TLS: KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP has "
                "to name SSL or SASL_SSL"
            )
        return
    for listener in secured:
        own = taken.get(f"KAFKA_TLS_{listener.name}_CLIENT_AUTH")
        if own is not None:
            settings.setdefault(f"listener.name.{listener.name.lower()}.ssl.client.auth", own)
    settings.setdefault("ssl.client.auth", taken.get(_CLIENT_AUTH, Given("required", "default of the image")))
    if "ssl.keystore.location" in settings or "ssl.keystore.key" in settings:
        return
    kind = taken.get(_TYPE, Given("JKS", "default of the image"))
    if kind.text.upper() == "PEM":
        _take_pem(settings, taken, root)
    else:
        _take_java_stores(settings, taken, root)
    password = taken.get(_PASSWORD)
    if password is not None:
        settings.setdefault("ssl.key.password", password)
        if kind.text.upper() != "PEM":
            settings.setdefault("ssl.keystore.password", password)
            settings.setdefault("ssl.truststore.password", password)


def _take_java_stores(settings: Settings, taken: Mapping[str, Given], root: Path) -> None:
    store = _certificate("kafka.keystore.jks", root)
    trust = PurePosixPath(taken[_TRUST].text) if _TRUST in taken else _certificate("kafka.truststore.jks", root)
    settings.setdefault("ssl.keystore.location", Given(str(store), str(store)))
    settings.setdefault("ssl.truststore.location", Given(str(trust), str(trust)))


def _take_pem(settings: Settings, taken: Mapping[str, Given], root: Path) -> None:
    key, chain = _certificate("kafka.keystore.key", root), _certificate("kafka.keystore.pem", root)
    trust = PurePosixPath(taken[_TRUST].text) if _TRUST in taken else _certificate("kafka.truststore.pem", root)
    settings["ssl.keystore.type"] = settings["ssl.truststore.type"] = Given("PEM", f"environment {_TYPE}")
    settings.setdefault("ssl.keystore.key", Given(_read(key, str(key), root), str(key)))
    settings.setdefault("ssl.keystore.certificate.chain", Given(_read(chain, str(chain), root), str(chain)))
    settings.setdefault("ssl.truststore.certificates", Given(_read(trust, str(trust), root), str(trust)))


def _certificate(name: str, root: Path) -> PurePosixPath:
    for directory in BITNAMI_CERTIFICATES:
        if (root / (directory / name).relative_to("/")).exists():
            return directory / name
    raise ImageError(f"a listener has TLS, and there is no {name} in {BITNAMI_CERTIFICATES[0]}")


def _read(path: PurePosixPath, origin: str, root: Path) -> str:
    try:
        return (root / path.relative_to("/")).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ImageError(f"{origin}: {path} cannot be read: {getattr(error, 'strerror', 'no text')}") from None
