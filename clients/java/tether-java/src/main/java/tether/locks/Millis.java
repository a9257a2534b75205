package tether.locks;

import java.time.Duration;

/** Milliseconds, as the core counts them and as the server takes them. */
final class Millis {
    private static final long MOST = (1L << 53) - 1;

    private Millis() {}

    /** Whole milliseconds, at least 1, at most what the server takes (P-ACQ-2). */
    static long roundUp(double ms) {
        return Math.min(MOST, Math.max(1, (long) Math.ceil(ms)));
    }

    static double of(Duration time) {
        return time.getSeconds() * 1e3 + time.getNano() / 1e6;
    }
}
