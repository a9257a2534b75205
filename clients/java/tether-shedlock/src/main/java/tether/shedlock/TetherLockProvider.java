package tether.shedlock;

import java.util.Objects;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import tether.locks.Hold;
import tether.locks.LockRequest;
import tether.locks.LostException;
import tether.locks.TetherException;
import tether.locks.TetherLocks;

/**
 * Locks of ShedLock by tether: {@code lockAtMostFor} is a lease, and the lock ends with the
 * process, however much of it is left.
 *
 * <p>{@code lockAtLeastFor} needs a client with a session ({@code grace}) that is as long: the time
 * must outlive the client. Otherwise {@link #lock} throws.
 */
public final class TetherLockProvider implements ExtensibleLockProvider {
    private static final Logger LOG = LoggerFactory.getLogger(TetherLockProvider.class);
    private static final String PREFIX = "shedlock:";

    private final TetherLocks locks;
    private final String prefix;

    /**
     * Locks whose keys are {@code shedlock:<name>}.
     *
     * @param locks a client, which the caller closes
     */
    public TetherLockProvider(TetherLocks locks) {
        this(locks, PREFIX);
    }

    /**
     * Locks of another environment.
     *
     * @param locks a client, which the caller closes
     * @param prefix before the name of each lock
     */
    public TetherLockProvider(TetherLocks locks, String prefix) {
        this.locks = Objects.requireNonNull(locks);
        this.prefix = Objects.requireNonNull(prefix);
    }

    /**
     * Takes the lock if nobody has it, and does not wait.
     *
     * @param configuration its name and times
     * @return the lock, or nothing if another has it or the thread is interrupted
     * @throws LockException no server was reached, or it refused for another reason
     */
    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        LockRequest request =
                locks.lock(prefix + configuration.getName())
                        .noWait()
                        .lease(configuration.getLockAtMostFor());
        if (!configuration.getLockAtLeastFor().isZero()) {
            request = request.atLeast(configuration.getLockAtLeastFor());
        }
        try {
            return request.tryAcquire().map(hold -> new Lock(configuration, hold));
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            return Optional.empty();
        } catch (TetherException error) {
            throw new LockException(
                    "the lock " + configuration.getName() + " cannot be acquired", error);
        }
    }

    private static final class Lock extends AbstractSimpleLock {
        private final Hold hold;

        Lock(LockConfiguration configuration, Hold hold) {
            super(configuration);
            this.hold = hold;
        }

        @Override
        protected void doUnlock() {
            try {
                hold.close();
            } catch (LostException lost) {
                LOG.warn(
                        "the lock {} was lost before its end: {}",
                        lockConfiguration.getName(),
                        lost.reason());
            } catch (TetherException error) {
                throw new LockException(
                        "the lock " + lockConfiguration.getName() + " is still being released",
                        error);
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration configuration) {
            try {
                hold.extend(configuration.getLockAtMostFor(), configuration.getLockAtLeastFor());
                return Optional.of(new Lock(configuration, hold));
            } catch (LostException lost) {
                return Optional.empty();
            } catch (TetherException error) {
                throw new LockException(
                        "the lock " + configuration.getName() + " cannot be extended", error);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw new LockException( // Nothing would say that the lock was lost.
                        "the thread was interrupted while the lock "
                                + configuration.getName()
                                + " was being extended",
                        interrupted);
            }
        }
    }
}
