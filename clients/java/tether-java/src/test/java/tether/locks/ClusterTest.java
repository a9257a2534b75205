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
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A cluster of two masters, each with half of the slots. */
@Timeout(600)
class ClusterTest {
    private static final int SLOTS = 16384;
    private TestServer low;
    private TestServer high;
    private TetherLocks locks;

    @BeforeEach
    void start() throws IOException {
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
        meet(high);
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

    private void meet(TestServer node) {
        assertEquals(
                "OK",
                low.ask(
                        "CLUSTER",
                        "MEET",
                        "127.0.0.1",
                        Integer.toString(node.port),
                        Integer.toString(node.busPort)));
    }

    @AfterEach
    void stop() {
        locks.close();
        low.close();
        high.close();
    }

    /** A name whose slot that node has. */
    private String name(String stem, TestServer node) {
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
        try (Subscription watch = locks.watch(List.of(key), events::add)) {
            assertEquals(KeyEvent.Kind.MISSING, events.poll(60, TimeUnit.SECONDS).kind());
            try (Candidate candidate = locks.elect(key, "me")) {
                assertTrue(candidate.awaitTerm().isHeld());
                assertEquals(KeyEvent.Kind.ADDED, events.poll(60, TimeUnit.SECONDS).kind());
                assertEquals(false, watch.ended().toCompletableFuture().isDone());
            }
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
        locks.lock(key).acquire().close(); // This client knows where it was.
        beginToMove(key);
        try (Hold asked = locks.lock(key).noWait().acquire()) {
            assertTrue(asked.isHeld());
            asked.checkServer();
        }
        try (Candidate candidate = locks.elect("{" + key + "}leader", "me")) {
            assertTrue(candidate.awaitTerm().isHeld());
        }
        endMove(key);
        try (Hold next = locks.lock(key).noWait().acquire()) {
            assertTrue(next.isHeld());
            assertEquals(List.of(1, 0), high.crowd(key));
        }
        assertEquals(List.of(0, 0), high.crowd(key));
    }

    private void beginToMove(String key) {
        String slot = Integer.toString(Slot.of(key));
        assertEquals("OK", high.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", id(low)));
        assertEquals("OK", low.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", id(high)));
    }

    private void endMove(String key) {
        String slot = Integer.toString(Slot.of(key));
        assertEquals("OK", high.ask("CLUSTER", "SETSLOT", slot, "NODE", id(high)));
        assertEquals("OK", low.ask("CLUSTER", "SETSLOT", slot, "NODE", id(high)));
    }

    private static String id(TestServer node) {
        return (String) node.ask("CLUSTER", "MYID");
    }

    /** P-CLUSTER-6: the session is where a hold is, not where the first request's slot went. */
    @Test
    void aSessionIsResumedWhereItsHoldsAre() throws Exception {
        try (TestServer replica = startNode()) {
            meet(replica);
            TestServer.eventually(
                    "the replica knows its master",
                    () -> "OK".equals(replica.ask("CLUSTER", "REPLICATE", id(low))));
            String gone = name("gone", low);
            locks.lock(gone).acquire().close();
            Hold hold = locks.lock(name("held", low)).acquire();
            beginToMove(gone);
            endMove(gone);
            TestServer.eventually(
                    "the replica knows that the slot has moved",
                    () -> replica.ask("EXISTS", gone).toString().contains(":" + high.port));
            String written = name("written", low);
            TestServer.eventually(
                    "the replica has the session", () -> low.isReplicatedWith(written));
            low.kill();
            assertEquals("OK", replica.ask("CLUSTER", "FAILOVER", "TAKEOVER"));
            hold.checkServer();
            assertTrue(hold.isHeld());
        }
    }
}
