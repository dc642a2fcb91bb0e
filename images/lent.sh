# Sourced before uv runs. images/build.py lends a build what its machine has: the wheels in its user's uv cache, and the
# certificates that it trusts (a proxy's, say). A Docker build has neither and keeps no cache.
if [ -d /lent/uv ]; then export UV_CACHE_DIR=/lent/uv; else export UV_NO_CACHE=1; fi
if [ -f /lent/certificates.crt ]; then export SSL_CERT_FILE=/lent/certificates.crt UV_SYSTEM_CERTS=1; fi
