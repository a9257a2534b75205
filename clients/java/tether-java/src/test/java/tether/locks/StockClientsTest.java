package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import java.io.IOException;
import java.io.InputStream;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.exceptions.JedisConnectionException;

/** What docs/clients.md and the README say of Lettuce and Jedis. */
@Timeout(300)
class StockClientsTest {
    private static TestServer server;

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    private static Long acquire(StatefulRedisConnection<String, String> me, String... words) {
        CommandArgs<String, String> arguments =
                new CommandArgs<>(StringCodec.UTF8).addKey(words[0]);
        for (String word : List.of(words).subList(1, words.length)) {
            arguments.add(word);
        }
        return me.sync()
                .dispatch(
                        () -> "LOCK.ACQUIRE".getBytes(StandardCharsets.US_ASCII),
                        new IntegerOutput<>(StringCodec.UTF8),
                        arguments);
    }

    private static void kill(StatefulRedisConnection<String, String> me) {
        String id = me.sync().clientId().toString();
        assertEquals(1L, server.ask("CLIENT", "KILL", "ID", id));
    }

    @Test
    void lettuceWithTheLinesStaysClosed(TestInfo test) {
        try (RedisClient client = RedisClient.create(RedisURI.create(server.uri()))) {
            client.setOptions(ClientOptions.builder().autoReconnect(false).build());
            StatefulRedisConnection<String, String> me = client.connect();
            assertTrue(acquire(me, test.getDisplayName(), "WAIT", "6000") > 0);
            kill(me);
            TestServer.eventually("the connection is closed", () -> !me.isOpen());
            assertThrows(RedisException.class, () -> me.sync().ping());
        }
    }

    @Test
    void lettuceAsItComesConnectsAnewInSilence(TestInfo test) {
        try (RedisClient client = RedisClient.create(RedisURI.create(server.uri()))) {
            StatefulRedisConnection<String, String> me = client.connect();
            assertTrue(acquire(me, test.getDisplayName()) > 0);
            kill(me);
            assertEquals("PONG", me.sync().ping());
            assertEquals(List.of(0, 0), server.crowd(test.getDisplayName()));
        }
    }

    @Test
    void lettuceGivesUpAndStaysInLine(TestInfo test) {
        try (RedisClient client = RedisClient.create(RedisURI.create(server.uri()));
                TestServer.Raw holder = new TestServer.Raw(server)) {
            holder.ask("LOCK.ACQUIRE", test.getDisplayName());
            StatefulRedisConnection<String, String> me = client.connect();
            me.setTimeout(Duration.ofMillis(100));
            assertThrows(
                    RedisException.class, () -> acquire(me, test.getDisplayName(), "WAIT", "0"));
            assertEquals(List.of(1, 1), server.crowd(test.getDisplayName()));
        }
    }

    @Test
    void lettuceKeepsPushesInStep(TestInfo test) throws Exception {
        try (RedisClient client = RedisClient.create(RedisURI.create(server.uri()));
                TestServer.Raw holder = new TestServer.Raw(server)) {
            holder.ask("LOCK.ACQUIRE", test.getDisplayName());
            StatefulRedisConnection<String, String> me = client.connect();
            BlockingQueue<String> pushes = new LinkedBlockingQueue<>();
            me.addListener(push -> pushes.add(push.getType()));
            assertEquals(null, acquire(me, test.getDisplayName(), "NOTIFY", "WAIT", "0", "PUSH"));
            holder.ask("LOCK.RELEASE", test.getDisplayName());
            assertEquals("lock", pushes.poll(60, TimeUnit.SECONDS));
            assertEquals("PONG", me.sync().ping());
        }
    }

    /** P-FRAME-2: the reply to nothing is dropped, and the connection stays. */
    @Test
    void lettuceDropsAReplyToNothing() throws Exception {
        try (ServerSocket listener = new ServerSocket(0);
                RedisClient client =
                        RedisClient.create("redis://127.0.0.1:" + listener.getLocalPort())) {
            BlockingQueue<Socket> accepted = new LinkedBlockingQueue<>();
            Thread fake = new Thread(() -> serve(listener, accepted));
            fake.start();
            client.setOptions(ClientOptions.builder().autoReconnect(false).build());
            StatefulRedisConnection<String, String> me = client.connect();
            accepted.take()
                    .getOutputStream()
                    .write("+STRAY\r\n".getBytes(StandardCharsets.US_ASCII));
            for (int count = 0; count < 3; count++) {
                me.sync().ping();
            }
            assertTrue(me.isOpen());
        }
    }

    /** Answers each command with what fits it: a map for HELLO, OK for all others. */
    private static void serve(ServerSocket listener, BlockingQueue<Socket> accepted) {
        try (Socket socket = listener.accept()) {
            accepted.add(socket);
            InputStream in = socket.getInputStream();
            Resp resp = new Resp(in::read);
            while (true) {
                List<?> words = assertInstanceOf(List.class, resp.read());
                String reply = words.get(0).equals("HELLO") ? "%1\r\n+proto\r\n:3\r\n" : "+OK\r\n";
                socket.getOutputStream().write(reply.getBytes(StandardCharsets.US_ASCII));
            }
        } catch (IOException over) {
            return;
        }
    }

    private static Object acquire(Jedis me, String... words) {
        return me.sendCommand(() -> "LOCK.ACQUIRE".getBytes(StandardCharsets.US_ASCII), words);
    }

    @Test
    void jedisStaysClosed(TestInfo test) {
        try (Jedis me = new Jedis("127.0.0.1", server.port, 10_000)) {
            assertInstanceOf(Long.class, acquire(me, test.getDisplayName(), "WAIT", "6000"));
            server.ask("CLIENT", "KILL", "ID", Long.toString(me.clientId()));
            assertThrows(JedisConnectionException.class, me::ping);
            assertTrue(me.isBroken());
        }
    }

    @Test
    void jedisTakesAPushForAReply(TestInfo test) {
        try (TestServer.Raw holder = new TestServer.Raw(server);
                Jedis me =
                        new Jedis(
                                new HostAndPort("127.0.0.1", server.port),
                                DefaultJedisClientConfig.builder()
                                        .protocol(RedisProtocol.RESP3)
                                        .build())) {
            holder.ask("LOCK.ACQUIRE", test.getDisplayName());
            assertEquals(null, acquire(me, test.getDisplayName(), "NOTIFY", "WAIT", "0", "PUSH"));
            holder.ask("LOCK.RELEASE", test.getDisplayName());
            server.awaitCrowd(test.getDisplayName(), 1, 0);
            assertInstanceOf(List.class, me.sendCommand(Protocol.Command.PING));
        }
    }

    @Test
    void jedisGivesUpAndStaysInLineUntilItIsClosed(TestInfo test) {
        try (TestServer.Raw holder = new TestServer.Raw(server)) {
            holder.ask("LOCK.ACQUIRE", test.getDisplayName());
            Jedis me = new Jedis("127.0.0.1", server.port, 100);
            me.connect();
            assertThrows(
                    JedisConnectionException.class,
                    () -> acquire(me, test.getDisplayName(), "WAIT", "0"));
            assertTrue(me.isBroken());
            me.close();
            server.awaitCrowd(test.getDisplayName(), 1, 0);
        }
    }
}
