package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class GreeterTest {
    private static final double WITHIN = 6000;
    private static final int MOMENT_MS = 200;

    @Test
    void severalAddressesShareTheTime() throws Exception {
        try (TestServer server = TestServer.start();
                ServerSocket silent = new ServerSocket(0, 9, InetAddress.getByName("127.0.0.1"))) {
            Address first = Address.of("redis://127.0.0.1:" + silent.getLocalPort());
            Address second = Address.of(server.uri());
            Greeter greeter = new Greeter("test", null, true);
            long began = System.nanoTime();
            Greeter.Greeted greeted = greeter.greet(List.of(first, second), WITHIN);
            greeted.wire().close();
            assertEquals(second, greeted.address());
            assertTrue(System.nanoTime() - began < WITHIN * 1e6, "the first had all of the time");
        }
    }

    @Test
    void ofTheAddressesOfANameOneMayRefuse(@TempDir Path folder) throws Exception {
        try (TestServer server = TestServer.start("--bind", "127.0.0.1")) {
            assertLocks(folder, server);
        }
    }

    /** Its queue is full, so that it drops what asks for a connection. */
    @Test
    void ofTheAddressesOfANameOneMayBeSilent(@TempDir Path folder) throws Exception {
        List<Socket> queue = new ArrayList<>();
        try (TestServer server = TestServer.start("--bind", "127.0.0.1");
                ServerSocket silent =
                        new ServerSocket(server.port, 1, InetAddress.getByName("127.0.0.2"))) {
            fill(silent.getLocalSocketAddress(), queue);
            assertLocks(folder, server);
        } finally {
            for (Socket each : queue) {
                each.close();
            }
        }
    }

    private static void fill(SocketAddress full, List<Socket> queue) throws IOException {
        while (true) {
            Socket socket = new Socket();
            queue.add(socket);
            try {
                socket.connect(full, MOMENT_MS);
            } catch (SocketTimeoutException isFull) {
                return;
            }
        }
    }

    /** A server that takes no connection any more: it is stopped, and its queue is full. */
    @Test
    void aUnixSocketMayBeSilent(@TempDir Path folder) throws Exception {
        Path path = folder.resolve("socket");
        UnixDomainSocketAddress place = UnixDomainSocketAddress.of(path);
        List<SocketChannel> queue = new ArrayList<>();
        try (ServerSocketChannel silent = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            silent.bind(place, 1);
            fill(place, queue);
            Address address = Address.of("unix://" + path);
            IOException error =
                    assertThrows(
                            IOException.class, () -> Wire.open(address, MOMENT_MS, null, true));
            assertEquals("no connection in time", error.getMessage());
        } finally {
            for (SocketChannel each : queue) {
                each.close();
            }
        }
    }

    private static void fill(UnixDomainSocketAddress full, List<SocketChannel> queue)
            throws IOException {
        while (true) {
            SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
            queue.add(channel);
            channel.configureBlocking(false);
            try {
                channel.connect(full);
            } catch (SocketException isFull) {
                return;
            }
        }
    }

    private static void assertLocks(Path folder, TestServer server) throws Exception {
        Path names = Files.writeString(folder.resolve("hosts"), "127.0.0.2 two\n127.0.0.1 two\n");
        Process process = namedHost(names, "redis://two:" + server.port);
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), said);
    }

    /** In a program of its own, since names are those of a file only where Java begins with it. */
    private static Process namedHost(Path names, String uri) throws IOException {
        return new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-Djdk.net.hosts.file=" + names,
                        "-cp",
                        System.getProperty("java.class.path"),
                        NamedHost.class.getName(),
                        uri)
                .redirectErrorStream(true)
                .start();
    }

    /** Nobody writes into the pipe from which names are read: each look for one takes for ever. */
    @Test
    void aNameThatIsNotFoundInTimeIsOneAttempt(@TempDir Path folder) throws Exception {
        Path names = folder.resolve("hosts");
        assertEquals(0, new ProcessBuilder("mkfifo", names.toString()).start().waitFor());
        Process process = namedHost(names, "redis://two:1");
        try {
            assertTrue(process.waitFor(20, TimeUnit.SECONDS), "it waits for the name");
            String said =
                    new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertTrue(said.contains("UnreachableException: two:1: no address"), said);
        } finally {
            process.destroyForcibly();
        }
    }
}
