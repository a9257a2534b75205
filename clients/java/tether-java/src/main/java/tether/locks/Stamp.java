package tether.locks;

/**
 * A moment on two clocks, in milliseconds: the monotonic one, and one that runs on while the
 * machine is suspended (P-FENCE-3).
 */
record Stamp(double mono, double boot) {}
