"""What stands in front of every answer: who asks, whether that client may, and how much it has used."""
