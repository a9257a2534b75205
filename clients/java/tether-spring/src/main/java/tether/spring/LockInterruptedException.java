package tether.spring;

/**
 * A thread was interrupted as it waited for the lock of a method with {@link TetherLock} that
 * declares no {@link InterruptedException}. The method was not run, and the thread is still
 * interrupted.
 */
public final class LockInterruptedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    LockInterruptedException(String name, InterruptedException cause) {
        super("interrupted while waiting for the lock " + name, cause);
    }
}
