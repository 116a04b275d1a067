"""What stands in front of every answer: who the client is, whether it may ask that, and how much it has used."""
