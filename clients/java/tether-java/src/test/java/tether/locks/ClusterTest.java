package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A cluster of two masters, each with half of the slots. */
@Timeout(600)
class ClusterTest {
    private static final int SLOTS = 16384;
    private static TestServer low;
    private static TestServer high;
    private static TetherLocks locks;

    @BeforeAll
    static void start() throws IOException {
        low = startNode();
        high = startNode();
        assertEquals(
                "OK", low.ask("CLUSTER", "ADDSLOTSRANGE", "0", Integer.toString(SLOTS / 2 - 1)));
        assertEquals(
                "OK",
                high.ask(
                        "CLUSTER",
                        "ADDSLOTSRANGE",
                        Integer.toString(SLOTS / 2),
                        Integer.toString(SLOTS - 1)));
        assertEquals(
                "OK",
                low.ask(
                        "CLUSTER",
                        "MEET",
                        "127.0.0.1",
                        Integer.toString(high.port),
                        Integer.toString(high.busPort)));
        for (TestServer node : List.of(low, high)) {
            TestServer.eventually(
                    "the cluster is whole",
                    () -> node.ask("CLUSTER", "INFO").toString().contains("cluster_state:ok"));
        }
        locks = TetherLocks.builder(low.uri()).cluster().grace(Duration.ofMinutes(1)).build();
    }

    private static TestServer startNode() throws IOException {
        return TestServer.startWithBus(
                "--cluster-enabled", "yes", "--cluster-node-timeout", "60000");
    }

    @AfterAll
    static void stop() {
        locks.close();
        low.close();
        high.close();
    }

    /** A name whose slot that node has. */
    private static String name(String stem, TestServer node) {
        for (int number = 0; ; number++) {
            String name = stem + number;
            if (Slot.of(name) < SLOTS / 2 == (node == low)) {
                return name;
            }
        }
    }

    @Test
    void requestsGoWhereTheirSlotIs() throws Exception {
        String a = name("a", low);
        String b = name("b", high);
        try (Hold one = locks.lock(a).acquire();
                Hold two = locks.lock(b).acquire()) {
            assertEquals(List.of(1, 0), low.crowd(a));
            assertEquals(List.of(1, 0), high.crowd(b));
            assertTrue(one.isHeld() && two.isHeld());
        }
        assertEquals(List.of(0, 0), low.crowd(a));
        assertEquals(List.of(0, 0), high.crowd(b));
        TetherException split = assertThrows(TetherException.class, locks.all(a, b)::acquire);
        assertEquals(Failure.CROSSSLOT, split.failure());
    }

    @Test
    void watchesAndElectionsGoThere() throws Exception {
        String key = name("w", high);
        BlockingQueue<KeyEvent> events = new LinkedBlockingQueue<>();
        try (Subscription watch = locks.watch(List.of(key), events::add);
                Candidate candidate = locks.elect(key, "me")) {
            assertEquals(KeyEvent.Kind.MISSING, events.poll(60, TimeUnit.SECONDS).kind());
            assertTrue(candidate.awaitTerm().isHeld());
            assertEquals(KeyEvent.Kind.ADDED, events.poll(60, TimeUnit.SECONDS).kind());
            assertEquals(false, watch.ended().toCompletableFuture().isDone());
        }
        Subscription untagged = locks.presence("members:", event -> {});
        ExecutionException error =
                assertThrows(
                        ExecutionException.class,
                        () -> untagged.ended().toCompletableFuture().get());
        assertEquals(Failure.CROSSSLOT, ((TetherException) error.getCause()).failure());
    }

    /** A slot on its way: ASK for what is not there, and MOVED afterwards. */
    @Test
    void aSlotMoves() throws Exception {
        String key = name("moving", low);
        String slot = Integer.toString(Slot.of(key));
        String from = (String) low.ask("CLUSTER", "MYID");
        String to = (String) high.ask("CLUSTER", "MYID");
        locks.lock(key).acquire().close(); // This client knows where it was.
        assertEquals("OK", high.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", from));
        assertEquals("OK", low.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to));
        try (Hold asked = locks.lock(key).noWait().acquire()) {
            assertTrue(asked.isHeld());
            asked.checkServer();
        }
        try (Candidate candidate = locks.elect("{" + key + "}leader", "me")) {
            assertTrue(candidate.awaitTerm().isHeld());
        }
        assertEquals("OK", high.ask("CLUSTER", "SETSLOT", slot, "NODE", to));
        assertEquals("OK", low.ask("CLUSTER", "SETSLOT", slot, "NODE", to));
        try (Hold next = locks.lock(key).noWait().acquire()) {
            assertTrue(next.isHeld());
            assertEquals(List.of(1, 0), high.crowd(key));
        }
        assertEquals(List.of(0, 0), high.crowd(key));
    }
}
