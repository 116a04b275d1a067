"""Access control lists, as Apache Kafka's authorizers have them."""
