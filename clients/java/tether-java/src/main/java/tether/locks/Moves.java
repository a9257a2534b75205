package tether.locks;

import java.util.concurrent.TimeUnit;

/**
 * How often a watch or a candidate, which has no time to wait, was sent from node to node
 * (P-CLUSTER-3). Run by the loop's thread.
 */
final class Moves {
    /** What has been at a node for so long has arrived there: the next move counts anew. */
    private static final long SETTLED_NS = TimeUnit.SECONDS.toNanos(1);

    private long last = System.nanoTime();
    private int count;
    private boolean hasAsked;

    /** Whether it goes on there; null: it was sent nowhere. */
    boolean follow(Cluster.Redirection to) {
        long now = System.nanoTime();
        if (now - last > SETTLED_NS) {
            count = 0;
            hasAsked = false;
        }
        boolean isAskedAgain = to != null && to.isAsk() && hasAsked; // P-CLUSTER-4
        if (to == null || count == Cluster.MOST_REDIRECTIONS || isAskedAgain) {
            return false;
        }
        last = now;
        count++;
        hasAsked |= to.isAsk();
        return true;
    }
}
