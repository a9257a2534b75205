package tether.locks;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A lock of {@code java.util.concurrent}: owned by the thread, which counts how often it took it.
 */
final class ThreadLock implements Lock {
    private final LockRequest request;
    private final String name;

    /** The other lock of a pair, which a thread that has this one cannot have; or null. */
    private final String other;

    private final ThreadHolds holds;

    ThreadLock(LockRequest request, String name, String other, ThreadHolds holds) {
        this.request = request;
        this.name = name;
        this.other = other;
        this.holds = holds;
    }

    /** Whether this thread has it already, and now once more. */
    private boolean isHeldAgain() {
        ThreadHolds.Held held = holds.ofThread().get(name);
        if (held == null) {
            if (holds.ofThread().containsKey(other)) {
                throw new DeadlockException(
                        "DEADLOCK",
                        "this thread holds " + other + ", and cannot have " + name + ", too");
            }
            return false;
        }
        held.hold.check();
        held.count++;
        return true;
    }

    private void keep(Hold hold) {
        holds.ofThread().put(name, new ThreadHolds.Held(hold));
    }

    @Override
    public void lock() {
        if (!isHeldAgain()) {
            keep(request.acquireUninterruptibly());
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        throwIfInterrupted();
        if (!isHeldAgain()) {
            keep(request.acquire());
        }
    }

    @Override
    public boolean tryLock() {
        try {
            if (isHeldAgain()) {
                return true;
            }
            keep(request.noWait().acquireUninterruptibly());
            return true;
        } catch (TakenException | DeadlockException taken) {
            return false;
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        throwIfInterrupted();
        try {
            if (isHeldAgain()) {
                return true;
            }
            Duration most = Duration.ofNanos(Math.max(0, unit.toNanos(time)));
            keep(request.waitAtMost(most).acquire());
            return true;
        } catch (TakenException | DeadlockException taken) {
            return false;
        }
    }

    private static void throwIfInterrupted() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
    }

    @Override
    public void unlock() {
        ThreadHolds.Held held = holds.ofThread().get(name);
        if (held == null) {
            holds.tidy();
            throw new IllegalMonitorStateException("this thread does not hold " + name);
        }
        held.count--;
        if (held.count == 0) {
            holds.ofThread().remove(name);
            holds.tidy();
            held.hold.close();
        }
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock of a server has no conditions");
    }

    @Override
    public String toString() {
        return "Lock(" + name + ")";
    }
}
