package tether.locks;

/** An error of the protocol: its name, its code and the server's text (P-ERR-1). */
record Problem(Failure failure, String code, String text) {
    static final Problem TAKEN = of(Failure.TAKEN, "another owner has the lock");
    static final Problem DEADLOCK =
            of(Failure.DEADLOCK, "this owner has or waits for the lock itself");
    static final Problem UNREACHABLE = of(Failure.UNREACHABLE, "no server was reached in time");
    static final Problem CLOSED = of(Failure.CLOSED, "the client is closed");
    static final Problem NOMODULE = of(Failure.NOMODULE, "the server lacks the module tether");
    static final Problem NOPUSH =
            of(
                    Failure.NOPUSH,
                    "this server sends no pushes to this connection; on the server, run `tether qualify`");
    static final Problem CROSSSLOT =
            of(Failure.CROSSSLOT, "in a cluster, all keys of a request must be in one slot");
    static final Problem LOST = of(Failure.LOST, "the lock was lost");

    /** P-LEAST-1. */
    static final Problem UNKEPT = unfit("at_least needs a session whose grace is as long");

    private static Problem of(Failure failure, String text) {
        return new Problem(failure, failure.name(), text);
    }

    static Problem unfit(String text) {
        return of(Failure.UNFIT, text);
    }

    static Problem refused(String code, String text) {
        return new Problem(Failure.REFUSED, code, text);
    }

    static Problem unreachable(String code, String text) {
        return new Problem(Failure.UNREACHABLE, code, text);
    }

    static Problem refused(ServerError error) {
        return refused(error.code(), error.text());
    }

    /** P-CONN-10: whether trying again is of no use. */
    boolean isFinal() {
        return failure != Failure.UNREACHABLE;
    }
}
