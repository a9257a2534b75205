"""The tests of tether-locks: pytest, with a real server (TETHER_SERVER, TETHER_MODULE)."""
