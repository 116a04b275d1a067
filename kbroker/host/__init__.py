"""What the broker asks of its host: the scheduler, signals, the service manager, and when garbage is collected."""
