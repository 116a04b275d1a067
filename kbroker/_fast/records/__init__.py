"""Record batches: headers, records, checksums, compression."""
