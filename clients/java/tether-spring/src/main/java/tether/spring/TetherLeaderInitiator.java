package tether.spring;

import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.context.SmartLifecycle;
import org.springframework.integration.leader.Candidate;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.event.LeaderEventPublisher;
import tether.locks.Failure;
import tether.locks.Hold;
import tether.locks.TetherException;
import tether.locks.TetherLocks;

/**
 * Stands as a candidate while it is started, calls its {@link Candidate} and publishes Spring
 * Integration's events: {@code OnGrantedEvent} when a term begins, {@code OnRevokedEvent} when it
 * ends, whether it was lost, yielded, or ended by {@link #stop}.
 *
 * <p>{@link Candidate#onGranted} may take as long as the term: its thread is interrupted when the
 * term ends, and {@link Candidate#onRevoked} is called once it has returned, or a second later. If
 * it throws, the candidate resigns, and stands again after a pause, which grows from 20 ms to a
 * second with each further failure. So does a candidate that the server refuses, which is logged:
 * the reason may be gone later.
 */
public final class TetherLeaderInitiator implements SmartLifecycle, DisposableBean {
    private static final Logger LOG = LoggerFactory.getLogger(TetherLeaderInitiator.class);

    /** How long a term's end waits for a candidate that is interrupted in {@code onGranted}. */
    private static final long INTERRUPTED_MS = 1000;

    private final TetherLocks locks;
    private final String prefix;
    private final Candidate candidate;
    private final LeaderEventPublisher publisher;

    /** Never held while a candidate is granted leadership: that may take as long as the term. */
    private final ReentrantLock lock = new ReentrantLock();

    private final Condition hasBegun = lock.newCondition();
    private volatile boolean isRunning;

    /** Null if it is stopped, and while it pauses after a failure. */
    private tether.locks.Candidate standing;

    private Term current;

    /** One after the other, up to now. */
    private int failures;

    /**
     * A candidate in the election of its role.
     *
     * @param locks a client, which the caller closes
     * @param prefix of the key, before the candidate's role
     * @param candidate is called when it leads, and when it leads no more
     * @param publisher is told the same
     */
    public TetherLeaderInitiator(
            TetherLocks locks, String prefix, Candidate candidate, LeaderEventPublisher publisher) {
        this.locks = Objects.requireNonNull(locks);
        this.prefix = Objects.requireNonNull(prefix);
        this.candidate = Objects.requireNonNull(candidate);
        this.publisher = Objects.requireNonNull(publisher);
    }

    @Override
    public void start() {
        isRunning = true;
        stand();
    }

    private void stand() {
        tether.locks.Candidate now;
        lock.lock();
        try {
            if (!isRunning || standing != null) {
                return;
            }
            now = locks.elect(prefix + candidate.getRole(), candidate.getId());
            standing = now;
        } finally {
            lock.unlock();
        }
        now.onElected(hold -> granted(now, hold));
        now.ended()
                .whenComplete(
                        (nothing, error) -> {
                            if (error instanceof TetherException refusal) {
                                refused(now, refusal);
                            }
                        });
    }

    private void standAfter(long pause) {
        CompletableFuture.delayedExecutor(pause, TimeUnit.MILLISECONDS).execute(this::stand);
    }

    /** It stands no more, by itself; again after a pause, unless the client was closed. */
    private void refused(tether.locks.Candidate by, TetherException refusal) {
        long pause;
        lock.lock();
        try {
            if (standing != by) {
                return; // It was stopped, or resigns.
            }
            standing = null;
            if (refusal.failure() == Failure.CLOSED) {
                return;
            }
            pause = nextPause();
        } finally {
            lock.unlock();
        }
        LOG.warn(
                "the candidate for {} is refused, and stands again after {} ms: {}",
                candidate.getRole(),
                pause,
                refusal.toString());
        standAfter(pause);
    }

    /** Resigns if it leads, and stands no more. */
    @Override
    public void stop() {
        tether.locks.Candidate now;
        Term term;
        lock.lock();
        try {
            isRunning = false;
            now = standing;
            standing = null;
            term = current;
            current = null;
        } finally {
            lock.unlock();
        }
        if (term != null) {
            term.revoke();
        }
        if (now != null) {
            now.close();
        }
    }

    @Override
    public boolean isRunning() {
        return isRunning;
    }

    @Override
    public void destroy() {
        stop();
    }

    private void granted(tether.locks.Candidate by, Hold hold) {
        Term term = new Term(by, hold);
        Term former;
        lock.lock();
        try {
            if (standing != by) {
                return; // It was stopped, which resigns.
            }
            former = current;
            current = term;
        } finally {
            lock.unlock();
        }
        if (former != null) {
            former.revoke(); // If that is not done yet.
        }
        hold.onLost(reason -> term.revoke());
        term.begin();
    }

    /** After a failure, in milliseconds, as the protocol has it (P-RETRY-1). Under the lock. */
    private long nextPause() {
        long most = Math.min(1000, 20L << Math.min(failures, 6));
        failures++;
        return Math.round(most * (1 + ThreadLocalRandom.current().nextDouble()) / 2);
    }

    private final class Term implements Context {
        private final tether.locks.Candidate by;
        private final Hold hold;

        /** The thread in which the candidate is granted it, while that takes. */
        private Thread granting;

        private boolean isGranted;
        private boolean isInterrupted;
        private boolean isRevoked;
        private volatile boolean isOver;

        Term(tether.locks.Candidate by, Hold hold) {
            this.by = by;
            this.hold = hold;
        }

        void begin() {
            lock.lock();
            try {
                if (isOver || !hold.isHeld()) {
                    return;
                }
                isGranted = true;
                granting = Thread.currentThread();
            } finally {
                lock.unlock();
            }
            try {
                candidate.onGranted(this);
                if (!isOver) {
                    publisher.publishOnGranted(TetherLeaderInitiator.this, this, getRole());
                }
                succeeded();
            } catch (InterruptedException interrupted) {
                if (!isOver) {
                    LOG.warn("the candidate for {} was interrupted: it resigns", getRole());
                    failed();
                    Thread.currentThread().interrupt();
                }
            } catch (RuntimeException | Error error) {
                LOG.error("the candidate for {} failed: it resigns", getRole(), error);
                failed();
            } finally {
                begun();
            }
        }

        private void succeeded() {
            lock.lock();
            try {
                failures = 0;
            } finally {
                lock.unlock();
            }
        }

        /** Resigns, and stands again after a pause; after a loss or a yield it stands already. */
        private void failed() {
            long pause;
            lock.lock();
            try {
                if (isOver || standing != by) {
                    return;
                }
                standing = null;
                pause = nextPause();
                revoke();
            } finally {
                lock.unlock();
            }
            standAfter(pause);
            try {
                by.close();
            } catch (TetherException error) {
                LOG.warn("the candidate for {} has not resigned in order", getRole(), error);
            }
        }

        private void begun() {
            lock.lock();
            try {
                granting = null;
                if (isInterrupted) {
                    Thread.interrupted(); // It is not for what this thread does next.
                }
                hasBegun.signalAll();
            } finally {
                lock.unlock();
            }
        }

        @Override
        public boolean isLeader() {
            return hold.isHeld();
        }

        /** Resigns; the candidate stands again, after all others. */
        @Override
        public void yield() {
            revoke();
            hold.releaseAsync();
        }

        @Override
        public String getRole() {
            return candidate.getRole();
        }

        /** Once: the work is to end before another can lead. */
        private void revoke() {
            lock.lock();
            try {
                isOver = true;
                if (granting != null && granting != Thread.currentThread()) {
                    isInterrupted = true;
                    granting.interrupt();
                    awaitBegun();
                }
                if (isGranted && !isRevoked) {
                    isRevoked = true;
                    revoked();
                }
            } finally {
                lock.unlock();
            }
        }

        /** A candidate that fails here resigns all the same. */
        private void revoked() {
            try {
                candidate.onRevoked(this);
                publisher.publishOnRevoked(TetherLeaderInitiator.this, this, getRole());
            } catch (RuntimeException error) {
                LOG.error("the candidate for {} failed as its term ended", getRole(), error);
            }
        }

        private void awaitBegun() {
            long left = TimeUnit.MILLISECONDS.toNanos(INTERRUPTED_MS);
            try {
                while (granting != null && left > 0) {
                    left = hasBegun.awaitNanos(left);
                }
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt(); // The term ends all the same.
            }
        }
    }
}
