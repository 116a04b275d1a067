"""What a log is in C: fields, index tables, producers, scans, appends."""
