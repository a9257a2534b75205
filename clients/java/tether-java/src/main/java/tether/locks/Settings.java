package tether.locks;

import java.util.function.DoubleSupplier;

/**
 * What a core is told about its client, in milliseconds.
 *
 * @param grace of the session; null: no session
 * @param stopWithin how long work goes on after a loss
 * @param fence the user's own; null: as long as it may be
 * @param random r of P-RETRY-1
 */
record Settings(
        Double grace,
        double stopWithin,
        Double fence,
        boolean isCluster,
        BootClock bootClock,
        DoubleSupplier random) {
    /** P-LEAST-1: a session must outlive the client for as long. */
    boolean mayKeep(double atLeast) {
        return atLeast <= (grace == null ? 0 : grace);
    }

    /** What is known of the time in suspend (P-FENCE-3). */
    enum BootClock {
        EXACT,
        UPTIME,
        NONE
    }
}
