package tether.locks;

import java.time.Duration;

/**
 * A program that takes the lock again and again, and says when it relied on it, as {@link Beliefs}
 * reads it. It says so only of moments before a check that passed. {@code X failure code}: it was
 * told that it has not, or has no more.
 *
 * <p>Arguments: its name, and where the servers are. A first word {@code blind} leaves the checks
 * out.
 */
final class CampaignWorker {
    static final Duration GRACE = Duration.ofSeconds(4);
    private static final int STEPS = 30;
    private static final Duration ACKNOWLEDGED_WITHIN = Duration.ofSeconds(2);

    private CampaignWorker() {}

    public static void main(String[] words) throws InterruptedException {
        boolean isBlind = words[0].equals("blind");
        String name = words[1];
        try (TetherLocks locks =
                TetherLocks.builder(words[2]).others(words[3]).name(name).grace(GRACE).build()) {
            LockRequest request =
                    locks.lock("campaign")
                            .waitAtMost(Duration.ofSeconds(20))
                            .acknowledgedBy(1, ACKNOWLEDGED_WITHIN);
            while (true) {
                try (Hold hold = request.acquire()) {
                    work(hold, isBlind);
                } catch (TetherException told) {
                    System.out.println("X " + told.failure() + " " + told.code());
                    Thread.sleep(20); // A server that is away refuses at once.
                }
            }
        }
    }

    private static void work(Hold hold, boolean isBlind) throws InterruptedException {
        for (int step = 0; step < STEPS; step++) {
            long at = System.nanoTime(); // CLOCK_MONOTONIC, which all processes share.
            if (!isBlind) {
                hold.check();
            }
            System.out.println("B campaign " + hold.token() + " " + at);
            Thread.sleep(3);
        }
    }
}
