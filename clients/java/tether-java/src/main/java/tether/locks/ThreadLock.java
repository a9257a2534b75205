package tether.locks;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/** A lock of {@code java.util.concurrent}: owned by the thread, which counts how often it took it. */
final class ThreadLock implements Lock {
    private final LockRequest request;
    private final String name;
    private final ThreadHolds holds;

    ThreadLock(LockRequest request, String name, ThreadHolds holds) {
        this.request = request;
        this.name = name;
        this.holds = holds;
    }

    /** Whether this thread has it already, and now once more. */
    private boolean isHeldAgain() {
        ThreadHolds.Held held = holds.ofThread().get(name);
        if (held == null) {
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
        if (isHeldAgain()) {
            return true;
        }
        try {
            keep(request.noWait().acquireUninterruptibly());
            return true;
        } catch (TakenException | DeadlockException taken) {
            return false;
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        throwIfInterrupted();
        if (isHeldAgain()) {
            return true;
        }
        try {
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
