package tether.spring;

import java.util.Objects;
import java.util.concurrent.locks.ReentrantLock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.context.SmartLifecycle;
import org.springframework.integration.leader.Candidate;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.event.LeaderEventPublisher;
import tether.locks.Hold;
import tether.locks.TetherLocks;

/**
 * Stands as a candidate while it is started, calls its {@link Candidate} and publishes Spring
 * Integration's events: {@code OnGrantedEvent} when a term begins, {@code OnRevokedEvent} when it
 * ends, whether it was lost, yielded, or ended by {@link #stop}.
 */
public final class TetherLeaderInitiator implements SmartLifecycle, DisposableBean {
    private static final Logger LOG = LoggerFactory.getLogger(TetherLeaderInitiator.class);

    private final TetherLocks locks;
    private final String prefix;
    private final Candidate candidate;
    private final LeaderEventPublisher publisher;

    /**
     * One event after the other: a term that is lost at once is granted first, and then revoked.
     */
    private final ReentrantLock inTurn = new ReentrantLock();

    private volatile tether.locks.Candidate standing;
    private volatile Term current;

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
        if (standing == null) {
            tether.locks.Candidate now =
                    locks.elect(prefix + candidate.getRole(), candidate.getId());
            standing = now;
            now.onElected(this::granted);
        }
    }

    /** Resigns if it leads, and stands no more. */
    @Override
    public void stop() {
        tether.locks.Candidate now = standing;
        if (now == null) {
            return;
        }
        standing = null;
        Term term = current;
        if (term != null) {
            term.revoke();
        }
        now.close();
    }

    @Override
    public boolean isRunning() {
        return standing != null;
    }

    @Override
    public void destroy() {
        stop();
    }

    private void granted(Hold hold) {
        Term term = new Term(hold);
        inTurn.lock();
        try {
            current = term;
            candidate.onGranted(term);
            publisher.publishOnGranted(this, term, candidate.getRole());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            LOG.warn("the candidate for {} was interrupted: it resigns", candidate.getRole());
            term.yield();
            return;
        } finally {
            inTurn.unlock();
        }
        hold.onLost(reason -> term.revoke());
    }

    private final class Term implements Context {
        private final Hold hold;
        private boolean isRevoked;

        Term(Hold hold) {
            this.hold = hold;
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
            inTurn.lock();
            try {
                if (!isRevoked) {
                    isRevoked = true;
                    candidate.onRevoked(this);
                    publisher.publishOnRevoked(TetherLeaderInitiator.this, this, getRole());
                }
            } finally {
                inTurn.unlock();
            }
        }
    }
}
