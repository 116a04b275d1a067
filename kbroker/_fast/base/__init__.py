"""What every room of extensions stands on: cursors, integers, checksums, threads, slices of the loop's time."""
