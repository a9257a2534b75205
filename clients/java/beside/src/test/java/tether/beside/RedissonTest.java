package tether.beside;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import org.redisson.client.RedisClient;
import org.redisson.client.RedisClientConfig;
import org.redisson.client.RedisConnection;
import org.redisson.client.RedisTimeoutException;
import org.redisson.client.protocol.RedisStrictCommand;
import tether.locks.TestServer;

/**
 * What docs/clients.md says of Redisson's connections, the only part of it that sends any command.
 */
@Timeout(300)
class RedissonTest {
    private static final RedisStrictCommand<Long> ACQUIRE =
            new RedisStrictCommand<>("LOCK.ACQUIRE");
    private static final RedisStrictCommand<Long> CLIENT_ID =
            new RedisStrictCommand<>("CLIENT", "ID");
    private static final RedisStrictCommand<String> PING = new RedisStrictCommand<>("PING");

    private static TestServer server;

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    private static RedisClient client(int timeoutMs) {
        RedisClientConfig config = new RedisClientConfig();
        config.setAddress("redis://127.0.0.1:" + server.port);
        config.setCommandTimeout(timeoutMs);
        return RedisClient.create(config);
    }

    @Test
    void itConnectsAnewInSilence(TestInfo test) {
        RedisClient client = client(10_000);
        RedisConnection me = client.connect();
        assertTrue(me.sync(ACQUIRE, test.getDisplayName()) > 0);
        assertEquals(List.of(1, 0), server.crowd(test.getDisplayName()));
        server.ask("CLIENT", "KILL", "ID", me.sync(CLIENT_ID).toString());
        TestServer.eventually(
                "it answers again",
                () -> {
                    try {
                        return "PONG".equals(me.sync(PING));
                    } catch (RuntimeException notYet) {
                        return false;
                    }
                });
        assertEquals(List.of(0, 0), server.crowd(test.getDisplayName()));
        client.shutdown();
    }

    @Test
    void itGivesUpAndStaysInLine(TestInfo test) {
        RedisClient holder = client(10_000);
        holder.connect().sync(ACQUIRE, test.getDisplayName());
        RedisClient client = client(100);
        RedisConnection me = client.connect();
        assertThrows(
                RedisTimeoutException.class,
                () -> me.sync(ACQUIRE, test.getDisplayName(), "WAIT", "0"));
        assertEquals(List.of(1, 1), server.crowd(test.getDisplayName()));
        client.shutdown();
        server.awaitCrowd(test.getDisplayName(), 1, 0);
        holder.shutdown();
    }
}
