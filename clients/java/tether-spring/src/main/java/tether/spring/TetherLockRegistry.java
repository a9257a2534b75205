package tether.spring;

import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.LockRegistry;
import tether.locks.TetherLocks;

/**
 * Spring Integration's locks by tether. They are as {@link TetherLocks#asLock} says: re-entrant,
 * owned by the thread, and {@code unlock()} throws {@link tether.locks.LostException} after a loss.
 * No time to live is needed; one that is given is a lease.
 */
public final class TetherLockRegistry implements LockRegistry<DistributedLock> {
    private final TetherLocks locks;
    private final String prefix;

    /**
     * Locks under a prefix.
     *
     * @param locks a client, which the caller closes
     * @param prefix before the text of each key
     */
    public TetherLockRegistry(TetherLocks locks, String prefix) {
        this.locks = Objects.requireNonNull(locks);
        this.prefix = Objects.requireNonNull(prefix);
    }

    /**
     * The lock of this key. Each call may give another object; all of one key are one lock.
     *
     * @param lockKey its text is what counts
     * @return a lock
     */
    @Override
    public DistributedLock obtain(Object lockKey) {
        return new OfKey(prefix + lockKey);
    }

    private final class OfKey implements DistributedLock {
        private final String name;
        private final Lock lock;

        OfKey(String name) {
            this.name = name;
            lock = locks.asLock(name);
        }

        @Override
        public void lock(Duration ttl) {
            locks.lock(name).lease(ttl).asLock().lock();
        }

        @Override
        public boolean tryLock(Duration waitTime, Duration ttl) throws InterruptedException {
            return locks.lock(name)
                    .lease(ttl)
                    .asLock()
                    .tryLock(waitTime.toNanos(), TimeUnit.NANOSECONDS);
        }

        @Override
        public void lock() {
            lock.lock();
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            lock.lockInterruptibly();
        }

        @Override
        public boolean tryLock() {
            return lock.tryLock();
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            return lock.tryLock(time, unit);
        }

        @Override
        public void unlock() {
            lock.unlock();
        }

        @Override
        public Condition newCondition() {
            return lock.newCondition();
        }
    }
}
