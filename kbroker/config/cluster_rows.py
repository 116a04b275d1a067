"""Broker settings of a cluster: other brokers, replication, election of leaders, ZooKeeper.

What Kafka 4 no longer has (ZooKeeper, and what went with it) is as in Kafka 3.9, and shown by DescribeConfigs where it
is set.  One row each, `name|type|default|dynamic scope|check|status|meaning`; an indented line continues the row above
it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

CLUSTER_ROWS = """
request.timeout.ms|INT|30000|||+|server-to-server request timeout
socket.connection.setup.timeout.ms|LONG|10000|||- connect|outbound connect timeout
socket.connection.setup.timeout.max.ms|LONG|30000|||- connect|cap of the above with backoff
controlled.shutdown.enable|BOOLEAN|true|||+|move leadership before stopping
initial.broker.registration.timeout.ms|INT|60000|||+|
    a broker of a KRaft cluster gives up its first registration after
broker.heartbeat.interval.ms|INT|2000||>=1|+|
    a worker, or a broker of a KRaft cluster, says that it is alive every so often
broker.session.timeout.ms|INT|9000||>=1|+|a worker that is silent for so long is killed and started again
controller.socket.timeout.ms|INT|30000|||+|controller channel timeout
replica.lag.time.max.ms|LONG|30000|||+|follower drops from ISR after this lag
replica.socket.timeout.ms|INT|30000|||+|replica fetch socket timeout
replica.socket.receive.buffer.bytes|INT|65536|||+|replica fetch SO_RCVBUF
replica.fetch.max.bytes|INT|1048576||>=0|+|per-partition bytes per replica fetch
replica.fetch.wait.max.ms|INT|500|||+|replica fetch long-poll
replica.fetch.backoff.ms|INT|1000||>=0|+|pause after replica fetch error
replica.fetch.min.bytes|INT|1|||+|replica fetch minimum
replica.fetch.response.max.bytes|INT|10485760||>=0|+|whole replica fetch reply cap
num.replica.fetchers|INT|1|cluster|>=1|+|fetcher threads per source broker
auto.leader.rebalance.enable|BOOLEAN|true|||+|preferred-leader balancer on
leader.imbalance.check.interval.seconds|LONG|300||>=1|+|balancer period
unclean.leader.election.interval.ms|LONG|300000||>=1|+i|unclean election scan period
inter.broker.listener.name|STRING|null|||+|listener between brokers
replica.selector.class|STRING|null||known class|+|
    sends consumers to a replica in their rack; unset: to the leader
replication.quota.window.num|INT|11||>=1|+|samples kept for replication quotas
replication.quota.window.size.seconds|INT|1||>=1|+|sample width
leader.replication.throttled.rate|LONG|9223372036854775807|cluster|>=0|+|bytes/s for throttled leaders
follower.replication.throttled.rate|LONG|9223372036854775807|cluster|>=0|+|bytes/s for throttled followers
log.dir.failure.timeout.ms|LONG|30000||>=1|+|
    a broker of a KRaft cluster ends if no controller hears of a failed log directory in this time
controlled.shutdown.max.retries|INT|3|||+i|attempts to move leadership before stopping
controlled.shutdown.retry.backoff.ms|LONG|5000|||+i|pause between these attempts
leader.imbalance.per.broker.percentage|INT|10|||+i|share of misplaced leaders at which the balancer acts
inter.broker.protocol.version|STRING|3.9-IV0|||+i|Kafka release whose protocol brokers speak to each other
control.plane.listener.name|STRING|null|||-i control|listener for the controller's requests to brokers
broker.id.generation.enable|BOOLEAN|true|||+i|let ZooKeeper choose the broker's id
reserved.broker.max.id|INT|1000||>=0|+i|largest id that is not chosen by ZooKeeper
zookeeper.connect|STRING|null|||+i|ZooKeeper servers host:port,… with an optional path behind them
zookeeper.session.timeout.ms|INT|18000|||+i|ZooKeeper takes a silent broker for dead after
zookeeper.connection.timeout.ms|INT|null|||+i|
    longest wait for a connection to ZooKeeper; unset: zookeeper.session.timeout.ms
zookeeper.max.in.flight.requests|INT|10||>=1|-i in flight|requests to ZooKeeper that are under way at a time
zookeeper.set.acl|BOOLEAN|false|||+i|write nodes that others may only read
zookeeper.metadata.migration.enable|BOOLEAN|false|||-i quorum|move metadata from ZooKeeper to a KRaft quorum
zookeeper.clientCnxnSocket|STRING|null|||xi class|class of connections to ZooKeeper
zookeeper.ssl.client.enable|BOOLEAN|false|||+i|TLS to ZooKeeper
zookeeper.ssl.keystore.location|STRING|null|||+i|key store path
zookeeper.ssl.keystore.password|PASSWORD|null|||+i|key store password
zookeeper.ssl.keystore.type|STRING|null|||+i|JKS, PKCS12, PEM
zookeeper.ssl.truststore.location|STRING|null|||+i|trust store path
zookeeper.ssl.truststore.password|PASSWORD|null|||!i|trust store password
zookeeper.ssl.truststore.type|STRING|null|||+i|JKS, PKCS12, PEM
zookeeper.ssl.protocol|STRING|TLSv1.2|||!i|TLS protocol
zookeeper.ssl.enabled.protocols|LIST|null|||!i|TLS versions
zookeeper.ssl.cipher.suites|LIST|null|||!i|cipher list
zookeeper.ssl.endpoint.identification.algorithm|STRING|HTTPS|||+i|hostname check
kbroker.zookeeper.sasl.username|STRING|null|||+|user for SASL DIGEST-MD5 to ZooKeeper (Kafka: JAAS section Client)
kbroker.zookeeper.sasl.password|PASSWORD|null|||+|its password
zookeeper.ssl.crl.enable|BOOLEAN|false|||!i|check revocation lists
zookeeper.ssl.ocsp.enable|BOOLEAN|false|||!i|check revocation online
"""
