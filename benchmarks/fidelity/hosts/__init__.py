"""Several hosts on one machine: network namespaces, joined by a relay with rates and delays."""
