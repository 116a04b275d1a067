"""Who a client is and what it may do: TLS, SASL, credentials, ACLs, delegation tokens."""
