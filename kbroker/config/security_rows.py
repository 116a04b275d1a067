"""Broker settings of TLS, SASL and delegation tokens.  kbroker refuses to start rather than ignore one.

One row each, `name|type|default|dynamic scope|check|status|meaning`; an indented line continues the
row above it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

SECURITY_ROWS = """
connections.max.reauth.ms|LONG|0|||+|force SASL re-authentication
sasl.server.max.receive.size|INT|524288|||+|pre-auth frame cap
security.providers|STRING|null|||- openssl|JCA providers
principal.builder.class|CLASS|org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder|broker||
    x class|principal builder plugin
ssl.client.auth|STRING|none|broker|one of required, requested, none|+|none, requested, required (mTLS)
ssl.principal.mapping.rules|STRING|DEFAULT|||+|DN to short principal rules
ssl.allow.dn.changes|BOOLEAN|false|||+|permit DN change on cert reload
ssl.allow.san.changes|BOOLEAN|false|||+|permit SAN change on cert reload
ssl.protocol|STRING|TLSv1.3|broker||+|TLS context protocol
ssl.enabled.protocols|LIST|TLSv1.2,TLSv1.3|broker|distinct|+|TLS versions
ssl.keystore.type|STRING|JKS|broker||+|JKS, PKCS12, PEM
ssl.keystore.location|STRING|null|broker||+|key store path
ssl.keystore.password|PASSWORD|null|broker||+|key store password
ssl.key.password|PASSWORD|null|broker||+|private key password
ssl.keystore.key|PASSWORD|null|broker||+|inline PEM key
ssl.keystore.certificate.chain|PASSWORD|null|broker||+|inline PEM chain
ssl.truststore.type|STRING|JKS|broker||+|JKS, PKCS12, PEM
ssl.truststore.location|STRING|null|broker||+|trust store path
ssl.truststore.password|PASSWORD|null|broker||+|trust store password
ssl.truststore.certificates|PASSWORD|null|broker||+|inline PEM CAs
ssl.endpoint.identification.algorithm|STRING|https|broker||+|hostname check on outbound TLS
ssl.cipher.suites|LIST||broker|distinct|+|cipher list (empty = default)
sasl.mechanism.inter.broker.protocol|STRING|GSSAPI|broker||+|mechanism by which brokers log in at each other
sasl.enabled.mechanisms|LIST|GSSAPI|broker|distinct|+|mechanisms offered
sasl.server.callback.handler.class|CLASS|null|||! class|server credential plugin
sasl.jaas.config|PASSWORD|null|broker||+|mechanism credentials (per listener+mechanism)
sasl.oauthbearer.scope.claim.name|STRING|scope|||+|JWT scope claim
sasl.oauthbearer.sub.claim.name|STRING|sub|||+|JWT subject claim
sasl.oauthbearer.jwks.endpoint.url|STRING|null|||+|JWKS source
sasl.oauthbearer.jwks.endpoint.refresh.ms|LONG|3600000|||+|JWKS refresh
sasl.oauthbearer.clock.skew.seconds|INT|30|||+|JWT clock skew
sasl.oauthbearer.expected.audience|LIST|||distinct|+|JWT aud
sasl.oauthbearer.expected.issuer|STRING|null|||+|JWT iss
delegation.token.secret.key|PASSWORD|null|||+|HMAC secret; enables tokens
delegation.token.max.lifetime.ms|LONG|604800000||>=1|+|hard token life
delegation.token.expiry.time.ms|LONG|86400000||>=1|+|renewal period
delegation.token.expiry.check.interval.ms|LONG|3600000||>=1|+|expiry scan
sasl.client.callback.handler.class|CLASS|null|||! class|client credential plugin
sasl.kerberos.kinit.cmd|STRING|/usr/bin/kinit|broker||- kerberos|path of kinit
sasl.kerberos.min.time.before.relogin|LONG|60000|broker||- kerberos|pause between ticket renewals
sasl.kerberos.principal.to.local.rules|LIST|DEFAULT|broker||+|Kerberos principal to short name rules
sasl.kerberos.service.name|STRING|null|broker||- kerberos|Kerberos service name of the broker
sasl.kerberos.ticket.renew.jitter|DOUBLE|0.05|broker||- kerberos|random part of the renewal time
sasl.kerberos.ticket.renew.window.factor|DOUBLE|0.8|broker||- kerberos|share of a ticket's life before renewal
sasl.login.callback.handler.class|CLASS|null|||! class|login plugin
sasl.login.class|CLASS|null|||! class|login class
sasl.login.connect.timeout.ms|INT|null|||!|connect timeout of the login provider
sasl.login.read.timeout.ms|INT|null|||!|read timeout of the login provider
sasl.login.refresh.buffer.seconds|SHORT|300|broker|0..3600|!|time kept free before a credential expires
sasl.login.refresh.min.period.seconds|SHORT|60|broker|0..900|!|shortest time between credential refreshes
sasl.login.refresh.window.factor|DOUBLE|0.8|broker|0.5..1.0|!|share of a credential's life after which it is refreshed
sasl.login.refresh.window.jitter|DOUBLE|0.05|broker|0.0..0.25|!|random part of the refresh time
sasl.login.retry.backoff.max.ms|LONG|10000|||!|longest pause between login attempts
sasl.login.retry.backoff.ms|LONG|100|||!|first pause between login attempts
sasl.oauthbearer.assertion.algorithm|STRING|RS256|||!|signing algorithm of client assertions
sasl.oauthbearer.assertion.claim.aud|STRING|null|||!|audience claim of client assertions
sasl.oauthbearer.assertion.claim.exp.seconds|INT|300|||!|life of client assertions
sasl.oauthbearer.assertion.claim.iss|STRING|null|||!|issuer claim of client assertions
sasl.oauthbearer.assertion.claim.jti.include|BOOLEAN|false|||!|put an id into client assertions
sasl.oauthbearer.assertion.claim.nbf.seconds|INT|60|||!|how far back client assertions are valid
sasl.oauthbearer.assertion.claim.sub|STRING|null|||!|subject claim of client assertions
sasl.oauthbearer.assertion.file|STRING|null|||!|file with a ready client assertion
sasl.oauthbearer.assertion.private.key.file|STRING|null|||!|key that signs client assertions
sasl.oauthbearer.assertion.private.key.passphrase|PASSWORD|null|||!|passphrase of that key
sasl.oauthbearer.assertion.template.file|STRING|null|||!|template of client assertions
sasl.oauthbearer.client.credentials.client.id|STRING|null|||+|client id for the token endpoint
sasl.oauthbearer.client.credentials.client.secret|PASSWORD|null|||+|client secret for the token endpoint
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms|LONG|10000|||+|longest pause between JWKS reads
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms|LONG|100|||+|first pause between JWKS reads
sasl.oauthbearer.jwt.retriever.class|CLASS|org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever|||! class|
    token source plugin
sasl.oauthbearer.jwt.validator.class|CLASS|org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator|||! class|
    token check plugin
sasl.oauthbearer.scope|STRING|null|||+|scope asked of the token endpoint
sasl.oauthbearer.token.endpoint.url|STRING|null|||+|token endpoint
ssl.engine.factory.class|CLASS|null|broker||x class|TLS engine plugin
ssl.keymanager.algorithm|STRING|SunX509|broker||- openssl|key manager algorithm
ssl.provider|STRING|null|broker||- openssl|JCA provider of TLS
ssl.secure.random.implementation|STRING|null|broker||- openssl|random number source of TLS
ssl.trustmanager.algorithm|STRING|PKIX|broker||- openssl|trust manager algorithm
"""
