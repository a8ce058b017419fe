"""The environment of security tests: certificates, token issuers, a Kerberos realm."""
