"""What a replay measured, for people (one HTML page) and for programs (JSON, Parquet), and two of them side by side."""
