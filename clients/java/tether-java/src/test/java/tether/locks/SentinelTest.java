package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** P-CONN-7: the master is where more than half of the Sentinels say. */
@Timeout(600)
class SentinelTest {
    @Test
    void aHoldOutlivesTheMaster() throws Exception {
        List<TestServer> sentinels = new ArrayList<>();
        try (TestServer master = TestServer.start("--repl-diskless-sync-delay", "0");
                TestServer replica = TestServer.start("--replicaof", "127.0.0.1 " + master.port)) {
            TestServer.eventually(
                    "the replica is in step", () -> master.isReplicatedWith("in-step"));
            for (int count = 0; count < 3; count++) {
                sentinels.add(TestServer.startSentinel("here", master.port));
            }
            String[] uris = sentinels.stream().map(TestServer::uri).toArray(String[]::new);
            TestServer.eventually(
                    "the Sentinels know each other and the replica",
                    () -> sentinels.stream().allMatch(SentinelTest::knowsAll));
            try (TetherLocks locks =
                    TetherLocks.builder("redis://nobody.invalid")
                            .sentinels("here", uris)
                            .grace(Duration.ofMinutes(2))
                            .build()) {
                Hold hold = locks.lock("k").acquire();
                assertEquals(List.of(1, 0), master.crowd("k"));
                TestServer.eventually(
                        "the replica has the session", () -> master.isReplicatedWith("in-step"));
                master.close();
                TestServer.eventually("the replica is promoted", () -> isMaster(replica));
                hold.checkServer();
                assertTrue(hold.isHeld());
                assertEquals(List.of(1, 0), replica.crowd("k"));
                hold.close();
                assertEquals(List.of(0, 0), replica.crowd("k"));
            }
        } finally {
            sentinels.forEach(TestServer::close);
        }
    }

    private static boolean isMaster(TestServer server) {
        try {
            return server.ask("INFO", "replication").toString().contains("role:master");
        } catch (
                IllegalStateException
                        closed) { // As the Sentinels do with all connections when they promote it.
            return false;
        }
    }

    private static boolean knowsAll(TestServer sentinel) {
        String master = sentinel.ask("SENTINEL", "MASTER", "here").toString();
        return master.contains("num-slaves=1") && master.contains("num-other-sentinels=2");
    }
}
