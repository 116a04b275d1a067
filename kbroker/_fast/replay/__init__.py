"""The replay's producer on librdkafka."""
