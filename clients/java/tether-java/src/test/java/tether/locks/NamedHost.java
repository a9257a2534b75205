package tether.locks;

/**
 * A program that takes a lock once, without waiting: it ends with an error if it cannot. Argument:
 * where the server is.
 */
final class NamedHost {
    private NamedHost() {}

    public static void main(String[] words) throws InterruptedException {
        try (TetherLocks locks = TetherLocks.builder(words[0]).name("named").build();
                Hold hold = locks.lock("k").noWait().acquire()) {
            hold.checkServer();
        }
    }
}
