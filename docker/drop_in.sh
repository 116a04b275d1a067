#!/bin/sh
# What makes the image stand in for apache/kafka, cp-kafka, bitnami/kafka and wurstmeister/kafka: their tools and start
# scripts by their names, and their directories.  Run once, as root, while the image is built (docker/Dockerfile).
set -e

at() {
    mkdir -p "$(dirname "$2")"
    ln -sf "$1" "$2"
}

for tool in kafka-topics kafka-broker-api-versions kafka-console-producer kafka-console-consumer \
    kafka-consumer-groups kafka-cluster kafka-storage kafka-server-start cub \
    kafka-acls kafka-configs kafka-get-offsets kafka-metadata-quorum kafka-run-class; do
    printf '#!/bin/sh\nexec kbroker kafka-tool %s "$@"\n' "$tool" > "/usr/local/bin/$tool"
    chmod 755 "/usr/local/bin/$tool"
    for place in /usr/bin/$tool /usr/local/bin/$tool.sh /opt/kafka/bin/$tool.sh /opt/bitnami/kafka/bin/$tool.sh; do
        at "/usr/local/bin/$tool" "$place"
    done
done

# Start scripts, and entrypoints that run what follows.
printf '#!/bin/sh\nexec kbroker container "$@"\n' > /usr/local/bin/kbroker-container
chmod 755 /usr/local/bin/kbroker-container
for place in /etc/kafka/docker/run /etc/confluent/docker/run /opt/bitnami/scripts/kafka/run.sh /run.sh \
    /opt/bitnami/scripts/kafka/entrypoint.sh /entrypoint.sh /__cacert_entrypoint.sh /usr/local/bin/start-kafka.sh; do
    at /usr/local/bin/kbroker-container "$place"
done
# Scripts that people mount edit these two, which do nothing here.
for script in configure ensure; do
    printf '#!/bin/sh\n' > "/etc/confluent/docker/$script"
    chmod 777 "/etc/confluent/docker/$script"
done

# Volumes get the owner and the mode of these.  Their containers run as several users, some by `user:` of the compose file.
for directory in /var/lib/kafka/data /var/lib/kafka-logs /bitnami/kafka/data /bitnami/kafka/config/certs /kafka \
    /tmp/kraft-combined-logs /tmp/kafka-logs /etc/kafka/secrets /mnt/shared/config /opt/kafka/config \
    /opt/bitnami/kafka/config/certs; do
    mkdir -p "$directory"
done
chown -R kbroker /var/lib/kafka /var/lib/kafka-logs /bitnami /kafka /tmp/kraft-combined-logs /tmp/kafka-logs
chmod -R a+rwX /var/lib/kafka /var/lib/kafka-logs /bitnami /kafka /tmp/kraft-combined-logs /tmp/kafka-logs \
    /etc/kafka/secrets /mnt/shared/config /opt/kafka/config /opt/bitnami/kafka/config /etc/confluent/docker
