package tether.locks;

/**
 * A lock was lost while its owner relied on it: what was done since may have met another holder's
 * work.
 */
public final class LostException extends TetherException {
    private static final long serialVersionUID = 1;

    LostException(String reason) {
        super(Failure.LOST, reason, "the lock was lost: " + reason);
    }

    /**
     * Why the lock was lost.
     *
     * @return the server's word ({@code lease}, {@code deleted}, {@code expired}, {@code evicted},
     *     {@code flushed}, {@code overwritten}, {@code moved}, {@code demoted}, {@code ended}, or
     *     one that a later server adds), or the client's ({@code connection}, {@code silence},
     *     {@code closed})
     */
    public String reason() {
        return code();
    }
}
