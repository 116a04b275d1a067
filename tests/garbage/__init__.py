"""What requests leave in a broker's memory: nothing."""
