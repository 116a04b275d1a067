"""Administration in a history: topics that come and go, settings that change, replicas that move."""
