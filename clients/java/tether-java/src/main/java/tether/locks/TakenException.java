package tether.locks;

/** Another owner has the lock, or still had it when the time to wait was over. */
public final class TakenException extends TetherException {
    private static final long serialVersionUID = 1;

    TakenException(String code, String text) {
        super(Failure.TAKEN, code, text);
    }
}
