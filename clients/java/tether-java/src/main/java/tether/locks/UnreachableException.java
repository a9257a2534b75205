package tether.locks;

/** There is no connection, or no answer came within the time to wait. */
public final class UnreachableException extends TetherException {
    private static final long serialVersionUID = 1;

    UnreachableException(String code, String text) {
        super(Failure.UNREACHABLE, code, text);
    }
}
