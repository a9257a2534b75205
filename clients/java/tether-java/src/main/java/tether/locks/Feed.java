package tether.locks;

import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Objects;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.Executor;
import java.util.concurrent.locks.ReentrantLock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Changes on their way to a reader, who may be slow (P-WATCH-5): once too many wait, they are
 * dropped, and the reader is told the difference between what it knows and what is so.
 *
 * @param <S> the state of a key; null: it has none any more
 */
final class Feed<S> {
    /** Tells the reader. */
    interface Teller<S> {
        /**
         * {@code before} is null where the reader knows of no state; {@code reason}: of the change,
         * or null.
         */
        void tell(String key, S before, S after, String reason);
    }

    private record Change<S>(String key, S state, String reason) {}

    private static final Logger LOG = LoggerFactory.getLogger(Feed.class);
    private static final int MOST = 1024;

    private final Teller<S> teller;
    private final Executor inTurn;
    private final ReentrantLock lock = new ReentrantLock();
    private final Queue<Change<S>> queue = new ArrayDeque<>();
    private final Map<String, S> latest = new HashMap<>();
    private final Map<String, S> told = new HashMap<>();
    private boolean isBehind;
    private boolean isScheduled;

    Feed(Executor executor, Teller<S> teller) {
        this.teller = teller;
        inTurn = ClientContext.inTurn(executor);
    }

    /** Something that follows all changes so far. */
    void last(Runnable action) {
        inTurn.execute(action);
    }

    void put(String key, S state, String reason) {
        lock.lock();
        try {
            if (state == null) {
                latest.remove(key);
            } else {
                latest.put(key, state);
            }
            if (!isBehind) {
                queue.add(new Change<>(key, state, reason));
            }
            if (queue.size() > MOST) {
                queue.clear();
                isBehind = true;
            }
            if (isScheduled) {
                return;
            }
            isScheduled = true;
        } finally {
            lock.unlock();
        }
        inTurn.execute(this::tellAll);
    }

    private void tellAll() {
        for (Change<S> change = next(); change != null; change = next()) {
            S before =
                    change.state == null
                            ? told.remove(change.key)
                            : told.put(change.key, change.state);
            try {
                teller.tell(change.key, before, change.state, change.reason);
            } catch (RuntimeException | Error error) { // What follows is told all the same.
                LOG.error("a callback failed", error);
            }
        }
    }

    private Change<S> next() {
        lock.lock();
        try {
            if (queue.isEmpty() && isBehind) {
                isBehind = false;
                addDifference();
            }
            Change<S> change = queue.poll();
            isScheduled = change != null;
            return change;
        } finally {
            lock.unlock();
        }
    }

    private void addDifference() {
        Set<String> keys = new LinkedHashSet<>(told.keySet());
        keys.addAll(latest.keySet());
        for (String key : keys) {
            if (!Objects.equals(told.get(key), latest.get(key))) {
                queue.add(new Change<>(key, latest.get(key), "unknown"));
            }
        }
    }
}
