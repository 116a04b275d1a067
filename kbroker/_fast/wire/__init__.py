"""The codec: field tables as programs that read and write requests and answers."""
