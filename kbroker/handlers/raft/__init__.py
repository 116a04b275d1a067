"""What the listener of a node with the controller role serves: other voters, brokers, and clients by envelope."""
