"""The agreement between the parts: names, ports, the routing ConfigMap, reasons. No part's own code."""
