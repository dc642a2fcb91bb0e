"""Pages for people over HTTP: what the driver's page and the operator's page share."""
