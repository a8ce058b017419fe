"""Security of connections: TLS below Kafka's protocol, SASL inside it.

TLS contexts and their failures (`tls`, `pem`, `tls_dialer`, `tls_failures`), SASL mechanisms and
their handshake step (`sasl/`), tokens and their sources (`tokens`, `oidc`, `assertions`).

Invariants: secrets appear in no repr, log line or error; host names are verified unless the user
switched that off; third-party libraries are imported when first needed, and the error without them
names the extra.
"""
