"""What security tests need around them: certificates, token issuers, a Kerberos realm."""
