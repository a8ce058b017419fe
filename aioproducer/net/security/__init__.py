"""Security of connections: TLS below Kafka's protocol, SASL inside it.

Owns: TLS contexts and what their failures mean (`tls`, `pem`, `tls_dialer`, `tls_failures`), the
SASL mechanisms and their place in the handshake (`sasl/`), tokens and where they are fetched
(`tokens`, `oidc`, `assertions`). Must not know: option names, requests other than SASL's, backoff.

Invariants: secrets appear in no repr, log line or error; host names are verified unless the user
switched that off; libraries other than the standard one are imported when first needed, and their
absence is an error that names the extra.
"""
