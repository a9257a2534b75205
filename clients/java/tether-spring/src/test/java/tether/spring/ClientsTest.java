package tether.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import javax.net.ssl.SSLContext;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import tether.locks.TetherLocks;

/** What a client makes of Spring's properties. */
@Timeout(60)
class ClientsTest {
    private static final int OF_TLS_HANDSHAKE = 0x16;
    private final TetherProperties tether = new TetherProperties("name", null, null, null);
    private final List<String> bundles = new ArrayList<>();

    private static RedisProperties redis(
            String url,
            String host,
            int port,
            RedisProperties.Ssl ssl,
            RedisProperties.Sentinel sentinel) {
        return new RedisProperties(url, host, port, null, null, 0, ssl, sentinel, null);
    }

    private SSLContext bundle(String name) {
        bundles.add(name);
        try {
            return SSLContext.getDefault();
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    private TetherLocks client(RedisProperties redis) {
        return Clients.of(redis, tether, this::bundle, List.of());
    }

    private interface Properties {
        RedisProperties at(int port);
    }

    private void assertBeginsWith(int expected, Properties properties) throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
            TetherLocks locks = client(properties.at(listener.getLocalPort()));
            locks.lock("k").noWait().acquireAsync();
            try (Socket socket = listener.accept()) {
                assertEquals(expected, socket.getInputStream().read());
            }
            locks.close();
        }
    }

    @Test
    void tlsIsOfAllThatItConnectsTo() throws Exception {
        RedisProperties.Ssl none = new RedisProperties.Ssl(null, null);
        RedisProperties.Ssl enabled = new RedisProperties.Ssl(true, null);
        RedisProperties.Ssl bundle = new RedisProperties.Ssl(null, "mine");
        String host = "127.0.0.1";
        assertBeginsWith('*', port -> redis(null, host, port, none, null));
        assertBeginsWith(OF_TLS_HANDSHAKE, port -> redis(null, host, port, enabled, null));
        assertBeginsWith(
                OF_TLS_HANDSHAKE,
                port -> redis("redis://" + host + ":" + port, null, 0, enabled, null));
        assertBeginsWith(
                OF_TLS_HANDSHAKE,
                port ->
                        redis(
                                null,
                                "localhost",
                                6379,
                                enabled,
                                new RedisProperties.Sentinel(
                                        "master", List.of(host + ":" + port), null, null)));
        assertEquals(List.of(), bundles);
        assertBeginsWith(OF_TLS_HANDSHAKE, port -> redis(null, host, port, bundle, null));
        assertEquals(List.of("mine"), bundles);
        RedisProperties.Ssl disabled = new RedisProperties.Ssl(false, "mine");
        assertBeginsWith('*', port -> redis(null, host, port, disabled, null));
    }

    /** What a client says first that has this URL. */
    private String hello(String url) throws Exception {
        RedisProperties.Ssl none = new RedisProperties.Ssl(null, null);
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
            String place = "127.0.0.1:" + listener.getLocalPort();
            TetherLocks locks = client(redis(url.replace("HERE", place), null, 0, none, null));
            locks.lock("k").noWait().acquireAsync();
            byte[] said = new byte[1000];
            int count;
            try (Socket socket = listener.accept()) {
                count = socket.getInputStream().read(said);
            }
            locks.close();
            return String.join(
                    " ",
                    new String(said, 0, count, StandardCharsets.UTF_8)
                            .replaceAll("[*$]\\d+\r\n", "")
                            .split("\r\n"));
        }
    }

    /** As Spring Boot has them: who is named alone is a password. */
    @Test
    void theCredentialsOfAUrlAreThoseOfSpringBoot() throws Exception {
        assertBegins("HELLO 3 CLIENT", hello("redis://HERE"));
        assertBegins("HELLO 3 AUTH default secret CLIENT", hello("redis://secret@HERE"));
        assertBegins("HELLO 3 AUTH default sec/ret CLIENT", hello("redis://sec%2Fret@HERE/1"));
        assertBegins("HELLO 3 AUTH default secret CLIENT", hello("redis://:secret@HERE"));
        assertBegins("HELLO 3 AUTH me secret CLIENT", hello("redis://me:secret@HERE"));
    }

    private static void assertBegins(String expected, String said) {
        assertTrue(said.startsWith(expected), said);
    }

    @Test
    void aHostThatCannotBeReadIsRefused() {
        RedisProperties.Ssl none = new RedisProperties.Ssl(null, null);
        RedisProperties redis = redis(null, "redis_master", 6379, none, null);
        assertThrows(IllegalArgumentException.class, () -> client(redis));
    }

    @Test
    void aConnectionThatEndedIsNoFault() {
        TetherHealth health = new TetherHealth();
        health.connected("here");
        assertEquals("UP", health.health().getStatus().getCode());
        health.disconnected("ended");
        assertEquals("UNKNOWN", health.health().getStatus().getCode());
        health.disconnected("refused");
        assertEquals("DOWN", health.health().getStatus().getCode());
    }
}
