package tether.locks;

/** The request would wait for itself, or close a cycle of waits. */
public final class DeadlockException extends TetherException {
    private static final long serialVersionUID = 1;

    DeadlockException(String code, String text) {
        super(Failure.DEADLOCK, code, text);
    }
}
