"""What happens before a broker has a metadata store: whether its directories go with one, and how one is made anew."""
