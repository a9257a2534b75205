package tether.locks;

/**
 * A call failed. The subclasses are what a caller usually tells apart; {@link #failure()} has the
 * protocol's names.
 */
public class TetherException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Why. */
    private final Failure failure;

    /** The code. */
    private final String code;

    TetherException(Failure failure, String code, String text) {
        super(text);
        this.failure = failure;
        this.code = code;
    }

    /**
     * Why the call failed.
     *
     * @return the protocol's name for it
     */
    public Failure failure() {
        return failure;
    }

    /**
     * The first word of the server's error, or the client's own word.
     *
     * @return the code, in capitals; of a loss, its reason
     */
    public String code() {
        return code;
    }

    static TetherException of(Problem problem) {
        String text = problem.text();
        return switch (problem.failure()) {
            case TAKEN -> new TakenException(problem.code(), text);
            case DEADLOCK -> new DeadlockException(problem.code(), text);
            case UNREACHABLE -> new UnreachableException(problem.code(), text);
            case LOST -> new LostException(problem.code());
            default -> new TetherException(problem.failure(), problem.code(), text);
        };
    }
}
